"""The wording of the optimizer's proposals: rules that ask for a directive, and edits that bring them in or out."""

import re
from collections.abc import Collection
from typing import Any

from local.standin.chance import fraction, pick
from local.standin.directives import DIRECTIVES, ON_DOCUMENTS, recognise
from local.standin.subject import Subject

JsonEdit = dict[str, Any]
_REGION = re.compile(r"<!--\s*(?:SLOW_UPDATE|APPENDIX)_START\s*-->")
_REST_OF_RULE = re.compile(r"[:;,.].*", re.DOTALL)


def body_of(skill: str) -> str:
    """Return what edits may change: the text before the first protected region."""
    return _REGION.split(skill, maxsplit=1)[0]


def edit(op: str, anchor: str, content: str, rationale: str) -> JsonEdit:
    """Return an edit as an answer holds it."""
    return {"op": op, "anchor": anchor, "content": content, "rationale": rationale}


def addition(skill: str, name: str, seed: str) -> JsonEdit:
    """Return a rule for a directive: behind the body's last rule if there is one and chance agrees, else at the end."""
    directive = DIRECTIVES[name]
    rule = f"- {pick(directive.rules, seed, name)}"
    rules = [line for line in body_of(skill).splitlines() if line.startswith("- ")]
    if rules and fraction(seed, name, "place") < 0.5:
        return edit("insert_after", rules[-1], rule, directive.reason)
    return edit("append", "", rule, directive.reason)


def removal(skill: str, name: str, seed: str) -> JsonEdit | None:
    """Delete the line of the body that asks for a directive, or keep what else it says; None if no line does."""
    line = next((line for line in body_of(skill).splitlines() if name in recognise(line)), None)
    if line is None:
        return None
    others = recognise(line) - {name}
    reason = f"This rule led astray: {line.removeprefix('- ').rstrip('.')}."
    if others:
        kept = "\n".join(f"- {DIRECTIVES[other].rules[0]}" for other in sorted(others))
        return edit("replace", line, kept, reason)
    if name in {"first_document", "last_document"} and "matching_documents" not in recognise(skill):
        rule = pick(DIRECTIVES["matching_documents"].rules, seed, name)
        return edit("replace", line, f"- {rule}", reason)
    return edit("delete", line, "", reason)


def denial(name: str) -> str | None:
    """Return a rule that switches a directive off again, for text that stands behind the rule that asks for it."""
    for rule in DIRECTIVES[name].rules:
        words = _REST_OF_RULE.sub("", rule)
        denied = f"Do not {words[0].lower()}{words[1:]}."
        if name not in recognise(f"{rule}\n{denied}") and not recognise(denied):
            return denied
    return None


def free_tempting(barred: Collection[str], subject: Subject | None) -> list[str]:
    """Return tempting directives on the subject which are not among the barred ones."""
    directives = subject.directives if subject else ON_DOCUMENTS
    return [directive.name for directive in directives if directive.tempting and directive.name not in barred]


def repeated_lines(skill: str) -> list[str]:
    """Return lines of the body that ask for nothing but what an earlier line asks for already."""
    seen: set[frozenset[str]] = set()
    repeated = []
    for line in body_of(skill).splitlines():
        asked = recognise(line)
        if asked and asked in seen:
            repeated.append(line)
        seen.add(asked)
    return repeated
