"""The stand-in in repositories: it knows how the sample's files should be, and repairs them as its directives let it.

Where a directive is missing it makes the mistake that goes with that: it repairs what the issue names and not what the
test shows, changes the first wrong line of a function that has two, or gives a function another signature.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache

from local.standin.conversation import Call, Reply
from local.standin.directive import Directive, directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, ActsInShell, Tool
from local.standin.symptom_case import SymptomCase

from .make_sample import NAMES, Bug, bugs, sources

_ASKS = "Resolve this issue in the repository"
_ISSUE = re.compile(r"<issue>\s*(?P<title>[^\n]+)")
_RAN, _READ, _CHANGED, _REFUSED, _SUBMITTED = (
    "=== tests ran",
    "lines in all]",
    "Changed ",
    "Nothing was changed",
    "Handed in",
)
_RUN_TESTS = f"python -m unittest 2>&1 | tail -n 20; echo '{_RAN}'"
_EDIT = """python3 - <<'PROGRAM'
from pathlib import Path
file, old, new = Path({path!r}), {old!r}, {new!r}
text = file.read_text()
if text.count(old) == 1:
    file.write_text(text.replace(old, new))
    print("Changed", file)
else:
    print("Nothing was changed")
PROGRAM"""
"""What the tool edit does, as a command of a shell."""
_VIEWED = re.compile(r'"first": ?(\d+), ?"last": ?(\d+)|sed -n (\d+),(\d+)p')
"""The lines that a look takes in, as a call or as a command of a shell."""
_FEW = 5
"""Lines that are read where not all of them are."""
_NEEDS = {"run": "failing_test_first", "read": "whole_function", "signature": "keep_signature"}
"""The directive that keeps from each kind of mistake."""

ON_REPOSITORIES = (
    directive(
        "failing_test_first",
        [r"\b(?:run|reproduce)\w*\b.{0,40}\b(?:failing test|test that fails|failure)\b.{0,30}\b(?:first|before)\b"],
        [
            "Run the failing test first, before you change anything.",
            "Reproduce the failure before you edit, and run the tests after it.",
        ],
        "The example of the issue was repaired, and other cases of the same fault were not.",
    ),
    directive(
        "whole_function",
        [r"\bread\b.{0,20}\b(?:whole|entire|complete)\b.{0,20}\b(?:function|method)\b"],
        [
            "Read the whole function before you edit it.",
            "Read the entire function and its docstring: a fault may have more than one place.",
        ],
        "Only the first wrong line of a function was changed.",
    ),
    directive(
        "keep_signature",
        [r"\b(?:keep|preserve|leave)\w*\b.{0,30}\b(?:signatures?|public interface)\b"],
        [
            "Keep the public signature of every function that you change.",
            "Keep signatures as they are; others call these functions.",
        ],
        "Tests that passed before fail, because a function is called in another way now.",
    ),
    directive(
        "fewest_lines",
        [r"\b(?:chang|edit|touch)\w*\b.{0,30}\b(?:a single line|one line|fewest lines)\b"],
        [
            "Change a single line where that makes the example of the issue work.",
            "Touch the fewest lines that you can.",
        ],
        "Large changes are hard to review.",
        tempting=True,
    ),
)


@cache
def _known() -> Mapping[str, Bug]:
    """Return the sample's bugs by the first line of their issues."""
    return {bug.problem.strip().split("\n")[0]: bug for name in NAMES for bug in bugs(name)}


def bug_of(prompt: str) -> Bug | None:
    """Return the bug of the sample that an issue tells; None for another repository's."""
    title = _ISSUE.search(prompt)
    return _known().get(title["title"].strip()) if title else None


def repair(bug: Bug, active: Active) -> tuple[str, str]:
    """Return the text to replace and the text to put in its place, as the directives let the stand-in see it."""
    hasty = "fewest_lines" in active and bug.needs == "read"
    careful = _NEEDS[bug.needs] in active and not hasty
    return bug.wrong, bug.right if careful else bug.mistake


def use_tool(active: Active, task: str, results: Sequence[str]) -> Reply:
    """Run tests, read, change and submit, each once."""
    bug = bug_of(task)

    def seen(words: str) -> bool:
        return any(words in result for result in results)

    if seen(_SUBMITTED):
        return Reply("The issue is resolved." if bug else "I do not know this repository.")
    if bug is None or seen(_CHANGED) or seen(_REFUSED):
        return _call("submit")
    if "failing_test_first" in active and not seen(_RAN):
        return _call("shell", command=_RUN_TESTS)
    if not seen(_READ):
        first, last = _place(bug)
        return _call(
            "view",
            path=bug.file,
            first=first,
            last=max(last, first + 2 * _FEW) if "whole_function" in active else first + _FEW,
        )
    old, new = repair(bug, active)
    return _call("edit", path=bug.file, old=old, new=new)


def _place(bug: Bug) -> tuple[int, int]:
    """Return the first and last line of the part of the file that is in question."""
    before, _, _ = sources(bug.repository)[bug.file].partition(bug.right)
    first = before.count("\n") + 1
    return first, first + bug.right.count("\n")


def _call(name: str, **arguments: str | int) -> Reply:
    return Reply(calls=(Call(name, json.dumps(arguments, ensure_ascii=False)),))


def symptoms(trajectory: SeenTrajectory) -> Mapping[str, bool]:
    """Return the directives that would have helped, and whether they have to be on; empty if nothing tells.

    They follow from what the target did and what the tests say, and not from the bug.
    """
    if trajectory.feedback.startswith("resolved"):
        return {}
    if "that passed before fail now" in trajectory.feedback:
        return {"keep_signature": True}
    text = "\n".join(said.content for said in trajectory.messages)
    looks = [(int(one or three), int(two or four)) for one, two, three, four in _VIEWED.findall(text)]
    found = {"whole_function": True} if looks and all(last - first <= _FEW for first, last in looks) else {}
    if _RAN not in text:
        found["failing_test_first"] = True
    # Whoever ran the tests, read the function and still changed too little was told to.
    return found or {"fewest_lines": False}


class Repositories(ActsInShell):
    """Issues of repositories, which are resolved by tools."""

    directives: Sequence[Directive] = ON_REPOSITORIES
    empty_advice: Sequence[tuple[str, str]] = (
        ("Read the issue to its end.", "The last sentence may tell what is expected."),
        ("Stay with what worked: find, read, change, hand in.", "The rollouts that went well did so."),
    )
    tools: Mapping[str, Tool] = {"shell": use_tool}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt asks to resolve an issue."""
        return prompt.startswith(_ASKS)

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return words alone: without a tool no file changes."""
        return "Without tools I cannot change the repository."

    def command(self, call: Call, task: str) -> str:
        """Return the command that does what a tool for repositories would."""
        arguments = json.loads(call.arguments)
        if call.name == "shell":
            return str(arguments["command"])
        if call.name == "view":
            lines = f"{arguments['first']},{arguments['last']}p"
            return f"sed -n {lines} {shlex.quote(arguments['path'])}; echo '[no more {_READ}'"
        return _EDIT.format(**arguments) if call.name == "edit" else f"git diff --stat; echo '{_SUBMITTED}.'"

    def case(self, trajectory: SeenTrajectory) -> SymptomCase:
        """Return the symptoms of the trajectory."""
        return SymptomCase(trajectory.item_id, symptoms(trajectory))


STANDIN = Repositories()
