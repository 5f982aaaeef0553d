"""Extract the skill and the task from requests of agent CLIs."""

import json
import re
import shlex

from local.standin.conversation import Call, Conversation

# Codex: a list in the instructions, and a separate message after the user writes $name.
_CODEX_LIST = "<skills_instructions>"
_CODEX_ROOT = re.compile(r"^- `(?P<root>\w+)` = `(?P<folder>[^`]+)`$", re.MULTILINE)
_CODEX_LISTED = re.compile(r"^- (?P<name>[\w-]+): .*\(file: (?P<root>\w+)/(?P<rest>[^)]+)\)$", re.MULTILINE)
_CODEX_SKILL = re.compile(r"<skill>\n<name>[^\n]*</name>\n<path>[^\n]*</path>\n(?P<skill>.*)\n</skill>", re.DOTALL)
_CODEX_SHELL = "exec_command"
# Claude Code: a list after a sentence, and two blocks after the user writes /name or the model calls the tool.
_CLAUDE_LIST = "skills are available for use with the Skill tool"
_CLAUDE_LISTED = re.compile(r"^- (?P<name>[\w-]+):", re.MULTILINE)
_CLAUDE_SKILL = re.compile(r"Base directory for this skill: [^\n]*\n\n(?P<skill>.*)", re.DOTALL)
_CLAUDE_TASK = re.compile(r"<command-message>.*?<command-args>(?P<task>.*)</command-args>\s*", re.DOTALL)
_CLAUDE_LOADER = "Skill"
_CLAUDE_READER = "Read"
_CLAUDE_PICTURE = re.compile(r"\n*Before you answer, look at the picture (\S+) with the tool Read\.")

SHELLS = {_CODEX_SHELL: "cmd", "Bash": "command"}
"""Shell tools of the CLIs, and their argument with the command."""
_FRONT_MATTER = re.compile(r"^---\nname: .*?\n---\n", re.DOTALL | re.MULTILINE)
_INVOCATION = re.compile(r"\A[$/][\w-]+\s+")
_CONTEXT_TAGS = ("<environment_context>", "<system-reminder>")


def skill_and_task(conversation: Conversation) -> tuple[str, str]:
    """Return the skill and the task of a CLI, else the system message and the user messages."""
    if not _by_cli(conversation):
        return conversation.system, conversation.user_text
    delivered = delivered_skill(conversation)
    messages = [turn.text for turn in conversation.turns if turn.role == "user"]
    commands = [match["task"] for text in messages if (match := _CLAUDE_TASK.fullmatch(text))]
    plain = [text for text in messages if not text.startswith(_CONTEXT_TAGS) and _skill_in(text) is None]
    task = commands[0] if commands else _INVOCATION.sub("", "\n\n".join(plain))
    skill = "" if delivered is None else delivered.removesuffix(f"\n\nARGUMENTS: {task}")
    return skill, _CLAUDE_PICTURE.sub("", task)


def skill_call(conversation: Conversation) -> Call | None:
    """Return the call that loads a skill that the user names and the CLI only lists, or None."""
    if not _by_cli(conversation) or delivered_skill(conversation) is not None:
        return None
    words = set(re.findall(r"[\w-]+", conversation.user_text))
    if _CODEX_SHELL in conversation.tools:
        folders = {match["root"]: match["folder"] for match in _CODEX_ROOT.finditer(conversation.system)}
        listed = [match for match in _CODEX_LISTED.finditer(conversation.system) if match["name"] in words]
        for match in listed:
            path = f"{folders.get(match['root'], '.')}/{match['rest']}"
            return Call(_CODEX_SHELL, json.dumps({"cmd": f"cat {shlex.quote(path)}"}))
    if _CLAUDE_LOADER in conversation.tools:
        _, _, skills = conversation.system.partition(_CLAUDE_LIST)
        for match in _CLAUDE_LISTED.finditer(skills):
            if match["name"] in words:
                return Call(_CLAUDE_LOADER, json.dumps({"skill": match["name"]}))
    return None


def picture_call(conversation: Conversation) -> Call | None:
    """Return the call that reads the first named picture that wasn't read yet, or None."""
    if not _by_cli(conversation) or _CLAUDE_READER not in conversation.tools:
        return None
    named = list(dict.fromkeys(_CLAUDE_PICTURE.findall(conversation.user_text)))
    read = sum(call.name == _CLAUDE_READER for turn in conversation.turns for call in turn.calls)
    return Call(_CLAUDE_READER, json.dumps({"file_path": named[read]})) if read < len(named) else None


def delivered_skill(conversation: Conversation) -> str | None:
    """Return the skill's text in the conversation, without its front matter."""
    for turn in conversation.turns:
        skill = _skill_in(turn.text) if turn.role == "user" else None
        if turn.role == "tool" and (front := _FRONT_MATTER.search(turn.text)):
            skill = turn.text[front.end() :]
        if skill is not None:
            return skill
    return None


def _skill_in(text: str) -> str | None:
    match = _CODEX_SKILL.fullmatch(text) or _CLAUDE_SKILL.fullmatch(text)
    return _FRONT_MATTER.sub("", match["skill"], count=1) if match else None


def _by_cli(conversation: Conversation) -> bool:
    return _CODEX_LIST in conversation.system or _CLAUDE_LIST in conversation.system
