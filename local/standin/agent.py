"""Read the skill and the task out of what agent CLIs send to a model."""

import json
import re
import shlex

from local.standin.conversation import Call, Conversation

# Codex: a list in the instructions, and a message of its own once the user wrote $name.
_CODEX_LIST = "<skills_instructions>"
_CODEX_ROOT = re.compile(r"^- `(?P<root>\w+)` = `(?P<folder>[^`]+)`$", re.MULTILINE)
_CODEX_LISTED = re.compile(r"^- (?P<name>[\w-]+): .*\(file: (?P<root>\w+)/(?P<rest>[^)]+)\)$", re.MULTILINE)
_CODEX_SKILL = re.compile(r"<skill>\n<name>[^\n]*</name>\n<path>[^\n]*</path>\n(?P<skill>.*)\n</skill>", re.DOTALL)
_CODEX_SHELL = "exec_command"
# Claude Code: a list behind a sentence, and two blocks once the user wrote /name or the model called the tool.
_CLAUDE_LIST = "skills are available for use with the Skill tool"
_CLAUDE_LISTED = re.compile(r"^- (?P<name>[\w-]+):", re.MULTILINE)
_CLAUDE_SKILL = re.compile(r"Base directory for this skill: [^\n]*\n\n(?P<skill>.*)", re.DOTALL)
_CLAUDE_TASK = re.compile(r"<command-message>.*?<command-args>(?P<task>.*)</command-args>\s*", re.DOTALL)
_CLAUDE_LOADER = "Skill"
_CLAUDE_READER = "Read"
_CLAUDE_PICTURE = re.compile(r"\n*Before you answer, look at the picture (\S+) with the tool Read\.")

SHELLS = {_CODEX_SHELL: "cmd", "Bash": "command"}
"""The CLIs' own tools for commands, and the argument of each that holds the command."""
COMMANDS = "shell"
"""A benchmark's name for its tool for commands, in whose place a CLI has its own."""
PROGRAMS = "run_python"
"""A benchmark's name for its tool for programs; a CLI has a shell in its place."""
_WITH_FILES = "($INPUTS)"
_WORKBOOKS = re.compile(r"The workbook is (?P<given>[\w.-]+)\. Save the changed workbook as (?P<made>[\w.-]+),")
_REPOSITORY = "Resolve this issue in the repository"
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
_IN_SHELL = """python3 - <<'PROGRAM'
import os
INPUT_PATH = os.path.join(os.environ["INPUTS"], {given!r})
OUTPUT_PATH = os.path.join(os.environ["OUTPUTS"], {made!r})
{code}
PROGRAM"""

_FRONT_MATTER = re.compile(r"^---\nname: .*?\n---\n", re.DOTALL | re.MULTILINE)
_INVOCATION = re.compile(r"\A[$/][\w-]+\s+")
_SURROUNDINGS = ("<environment_context>", "<system-reminder>")


def opening(conversation: Conversation) -> tuple[str, str]:
    """Return the skill and the task: what a CLI delivered as such, else the instructions and what the user said."""
    if not _by_cli(conversation):
        return conversation.system, conversation.user_text
    delivered = delivered_skill(conversation)
    said = [turn.text for turn in conversation.turns if turn.role == "user"]
    commands = [match["task"] for text in said if (match := _CLAUDE_TASK.fullmatch(text))]
    plain = [text for text in said if not text.startswith(_SURROUNDINGS) and _skill_in(text) is None]
    task = commands[0] if commands else _INVOCATION.sub("", "\n\n".join(plain))
    skill = "" if delivered is None else delivered.removesuffix(f"\n\nARGUMENTS: {task}")
    return skill, _CLAUDE_PICTURE.sub("", task)


def loading(conversation: Conversation) -> Call | None:
    """Return the call that loads a skill which the user names and the CLI has only announced, or None."""
    if not _by_cli(conversation) or delivered_skill(conversation) is not None:
        return None
    said = set(re.findall(r"[\w-]+", conversation.user_text))
    if _CODEX_SHELL in conversation.tools:
        folders = {match["root"]: match["folder"] for match in _CODEX_ROOT.finditer(conversation.system)}
        listed = [match for match in _CODEX_LISTED.finditer(conversation.system) if match["name"] in said]
        for match in listed:
            path = f"{folders.get(match['root'], '.')}/{match['rest']}"
            return Call(_CODEX_SHELL, json.dumps({"cmd": f"cat {shlex.quote(path)}"}))
    if _CLAUDE_LOADER in conversation.tools:
        _, _, skills = conversation.system.partition(_CLAUDE_LIST)
        for match in _CLAUDE_LISTED.finditer(skills):
            if match["name"] in said:
                return Call(_CLAUDE_LOADER, json.dumps({"skill": match["name"]}))
    return None


def looking(conversation: Conversation) -> Call | None:
    """Return the call that reads the first picture which the user names and nothing has shown yet, or None."""
    if not _by_cli(conversation) or _CLAUDE_READER not in conversation.tools:
        return None
    named = list(dict.fromkeys(_CLAUDE_PICTURE.findall(conversation.user_text)))
    read = sum(call.name == _CLAUDE_READER for turn in conversation.turns for call in turn.calls)
    return Call(_CLAUDE_READER, json.dumps({"file_path": named[read]})) if read < len(named) else None


def usable(conversation: Conversation, task: str) -> tuple[str, ...]:
    """Return the tools on offer; where a shell is, and a workbook to work on, also the one that runs programs."""
    if _by_cli(conversation) and task.startswith(_REPOSITORY):
        return (COMMANDS,)
    has_work = _WITH_FILES in task and _WORKBOOKS.search(task) is not None
    programs = _by_cli(conversation) and has_work and any(name in SHELLS for name in conversation.tools)
    return (*conversation.tools, PROGRAMS) if programs else conversation.tools


def offered(call: Call, conversation: Conversation, task: str) -> Call:
    """Return the call as it can be made: a program goes through a CLI's shell."""
    shell = next((name for name in conversation.tools if name in SHELLS), None)
    if call.name in conversation.tools or shell is None:
        return call
    if task.startswith(_REPOSITORY):
        return Call(shell, json.dumps({SHELLS[shell]: _in_repository(call)}, ensure_ascii=False))
    names = _WORKBOOKS.search(task)
    if names is None:
        return call
    command = _IN_SHELL.format(given=names["given"], made=names["made"], code=json.loads(call.arguments)["code"])
    return Call(shell, json.dumps({SHELLS[shell]: command}, ensure_ascii=False))


def _in_repository(call: Call) -> str:
    """Return the command that does what a tool for repositories would."""
    arguments = json.loads(call.arguments)
    if call.name == "shell":
        return str(arguments["command"])
    if call.name == "view":
        lines = f"{arguments['first']},{arguments['last']}p"
        return f"sed -n {lines} {shlex.quote(arguments['path'])}; echo '[no more lines in all]'"
    return _EDIT.format(**arguments) if call.name == "edit" else "git diff --stat; echo 'Handed in.'"


def delivered_skill(conversation: Conversation) -> str | None:
    """Return the text of the skill that the conversation holds already, without its front matter."""
    for turn in conversation.turns:
        found = _skill_in(turn.text) if turn.role == "user" else None
        if turn.role == "tool" and (front := _FRONT_MATTER.search(turn.text)):
            found = turn.text[front.end() :]
        if found is not None:
            return found
    return None


def _skill_in(text: str) -> str | None:
    match = _CODEX_SKILL.fullmatch(text) or _CLAUDE_SKILL.fullmatch(text)
    return _FRONT_MATTER.sub("", match["skill"], count=1) if match else None


def _by_cli(conversation: Conversation) -> bool:
    return _CODEX_LIST in conversation.system or _CLAUDE_LIST in conversation.system
