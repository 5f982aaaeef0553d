"""Right and wrong answers to items, in the form that the harness takes: text, programs, file changes."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

from local.standin.agent import SHELLS
from local.standin.conversation import Call, Conversation, Reply
from local.standin.economy import pick
from local.standin.known_items import KnownItem
from skillopt_airflow.core.values.types import Item, Status, Trajectory
from skillopt_airflow.tasks.grading import GradingRequest
from skillopt_airflow.tasks.protocols import AsksJudge, JudgesFiles, JudgesRepository
from skillopt_airflow.tasks.repository_tests import RepositoryTests

WORDINGS = (
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    "{}",
    "Answer: {}",
    "#### {}",
    '{{"answer": {json}}}',
    "The answer is {}.",
)
"""Response formats; the stand-in uses the first that the benchmark scores as right."""
MAX_REFERENCES = 40
"""Texts of a reference to try as the answer."""
UNKNOWN = "unknown"
DONE = "Done."
_WORKBOOKS = ("input.xlsx", "output.xlsx")
_APPLY = "git apply <<'PATCH'\n{}\nPATCH"
_WRITE_CELLS = """import datetime
import hashlib

from openpyxl import load_workbook

book = load_workbook(INPUT_PATH)
with open(INPUT_PATH, "rb") as given:
    workbook = hashlib.sha256(given.read()).hexdigest()
for sheet, cell, value in {cells!r}.get(workbook, ()):
    book[sheet][cell] = value
book.save(OUTPUT_PATH)
"""
_IN_SHELL = """python3 - <<'PROGRAM'
import os
INPUT_PATH = os.path.join(os.environ["INPUTS"], {names[0]!r})
OUTPUT_PATH = os.path.join(os.environ["OUTPUTS"], {names[1]!r})
{code}
PROGRAM"""


def next_turn(known: KnownItem, conversation: Conversation, *, right: bool) -> Reply:
    """Return the next tool call for an item, or its final answer."""
    if isinstance(known.benchmark, JudgesRepository):
        calls, words = _changes(known.benchmark, known.item, conversation.tools, right=right), DONE
    elif isinstance(known.benchmark, JudgesFiles):
        calls, words = _program(known, conversation.tools, right=right)
    else:
        calls, words = _search(known, conversation.tools), words_for(known, right=right)
    previous = {(call.name, _plain(call.arguments)) for turn in conversation.turns for call in turn.calls}
    pending = [call for call in calls if (call.name, _plain(call.arguments)) not in previous]
    return Reply(calls=(pending[0],)) if pending else Reply(words)


def words_for(known: KnownItem, *, right: bool) -> str:
    """Return a response that is right, or plausible and wrong, by the benchmark's scoring."""
    wording, answer = _right(known)
    if right:
        return wording.format(answer, json=json.dumps(answer))
    others = [text for item in known.neighbors[:MAX_REFERENCES] for text in _texts(item.reference) if text != answer]
    candidate = pick(others, known.item.id, "other") if others else UNKNOWN
    for text in (candidate, UNKNOWN, "none of them"):
        response = wording.format(text, json=json.dumps(text))
        if not agrees(known, response):
            return response
    return ""


@lru_cache(maxsize=10_000)
def _right(known: KnownItem) -> tuple[str, str]:
    """Return the first wording and text that the benchmark scores as right, else the first ones."""
    texts = list(dict.fromkeys(_texts(known.item.reference)))[:MAX_REFERENCES] or [UNKNOWN]
    for wording in WORDINGS:
        for text in texts:
            if agrees(known, wording.format(text, json=json.dumps(text))):
                return wording, text
    return WORDINGS[0], texts[0]


def agrees(known: KnownItem, response: str) -> bool:
    """Return whether a response is right by the benchmark's rules or the judge's references."""
    benchmark, item = known.benchmark, known.item
    trajectory = Trajectory(item_id=item.id, status=Status.OK, answer=benchmark.answer(response))
    try:
        if isinstance(benchmark, AsksJudge) and not benchmark.decides(item, trajectory):
            return _matches(benchmark.grading(item, trajectory))
        return benchmark.score(item, trajectory).hard == 1
    except Exception:  # noqa: BLE001 - the benchmark's own code
        return False


def _matches(request: GradingRequest) -> bool:
    return any(request.answer.split() == reference.split() for reference in request.references)


def _texts(value: object) -> Iterator[str]:
    """Yield the strings and numbers in a reference, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner)
            # The letter of a multiple-choice option.
            if len(name) == 1:
                yield name
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool) and str(value).strip():
        yield str(value)


def _search(known: KnownItem, tools: Sequence[str]) -> list[Call]:
    """Return one search for the question if the client has a search tool."""
    name = next((tool for tool in tools if tool.startswith("search")), None)
    question = str(
        next((known.item.public[key] for key in ("question", "query") if key in known.item.public), known.item.id)
    )
    return [] if name is None else [_call(name, query=" ".join(question.split())[:200])]


def _changes(benchmark: JudgesRepository, item: Item, tools: Sequence[str], *, right: bool) -> list[Call]:
    """Return the calls that apply the recorded patch, or a useless change, and submit."""
    patch = str(item.reference["patch"])
    tests = benchmark.tests(item, patch)
    if right or not isinstance(tests, RepositoryTests):
        command = _APPLY.format(patch.rstrip("\n"))
    else:
        command = f"echo >> {shlex.quote(tests.touched[0])}"
    calls = [_in_shell(tools, command)]
    return [*calls, _call("submit")] if "submit" in tools else calls


def _program(known: KnownItem, tools: Sequence[str], *, right: bool) -> tuple[list[Call], str]:
    """Return the program that writes the reference's cells (or none), as a call or as text."""
    code = _WRITE_CELLS.format(cells=_reference_cells(known) if right else {})
    if "run_python" in tools:
        return [_call("run_python", code=code)], DONE
    if any(tool in SHELLS for tool in tools):
        return [_in_shell(tools, _IN_SHELL.format(names=_WORKBOOKS, code=code))], DONE
    return [], f"```python\n{code}```"


def _reference_cells(known: KnownItem) -> dict[str, list[tuple[str, str, object]]]:
    """Return the cells that differ in the reference, by the SHA-256 of the input workbook."""
    cells = {}
    for item in known.alike or [known.item]:
        [given], [golden] = known.files(item.files).values(), known.files(item.reference_files).values()
        before, after = _cells(given), _cells(golden)
        changed = [(*place, value) for place, value in after.items() if before.get(place) != value]
        cells[hashlib.sha256(given).hexdigest()] = changed
    return cells


@lru_cache(maxsize=256)
def _cells(workbook: bytes) -> dict[tuple[str, str], Any]:
    from openpyxl import load_workbook

    book = load_workbook(BytesIO(workbook), data_only=True)
    return {(sheet.title, cell.coordinate): cell.value for sheet in book for row in sheet for cell in row}


def _in_shell(tools: Sequence[str], command: str) -> Call:
    name = next((tool for tool in tools if tool in SHELLS), "shell")
    return _call(name, **{SHELLS.get(name, "command"): command})


def _call(name: str, **arguments: str) -> Call:
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _plain(arguments: str) -> str:
    """Return comparable arguments: clients may reformat the JSON and add arguments for a shell."""
    try:
        read = json.loads(arguments)
    except ValueError:
        return arguments
    return json.dumps({key: read[key] for key in sorted(read) if key in ("query", "code", "command", "cmd")})
