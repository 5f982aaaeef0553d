"""The stand-in as optimizer, stages merge and rank."""

from collections import defaultdict
from typing import Any

from include.models.standin.chance import fraction
from include.models.standin.directives import DIRECTIVES, recognise
from include.models.standin.requests import BareEdit, MergeRequest, PooledEdit, RankRequest
from include.models.standin.words import key

_GULLIBILITY = 0.25
"""How often a tempting rule is ranked far above its support."""
Meaning = tuple[str, tuple[str, ...]]


def merge(request: MergeRequest) -> dict[str, Any]:
    """One edit for all that mean the same, in order of first mention; where failures have priority they go first."""
    edits = list(request.edits)
    if request.priority == "failure-over-success":
        edits.sort(key=lambda edit: edit.source_type != "failure")
    groups: defaultdict[Meaning, list[PooledEdit]] = defaultdict(list)
    for edit in edits:
        groups[_meaning(edit)].append(edit)
    return {"edits": [_united(group) for group in groups.values()]}


def rank(request: RankRequest) -> dict[str, Any]:
    """All indices, best first: by support, times a belief in the wording that can be wrong."""
    order = sorted(request.edits, key=lambda edit: (-edit.support_count * _belief(edit, request.skill), edit.index))
    return {"order": [edit.index for edit in order]}


def _meaning(edit: BareEdit) -> Meaning:
    """What an edit is about: the directives that it brings in, or else its plain words."""
    if edit.op == "delete":
        return "delete", (key(edit.anchor),)
    asked = tuple(sorted(recognise(edit.content)))
    kind = "replace" if edit.op == "replace" else "add"
    return (kind, (key(edit.anchor),)) if edit.op == "replace" else (kind, asked if asked else (key(edit.content),))


def _united(group: list[PooledEdit]) -> dict[str, Any]:
    best = max(group, key=lambda edit: edit.support_count)
    sources = sorted(edit.index for edit in group)
    return best.model_dump(include={"op", "anchor", "content", "rationale"}) | {"sources": sources}


def _belief(edit: PooledEdit, skill: str) -> float:
    asked = recognise(edit.content)
    if any(DIRECTIVES[name].tempting for name in asked):
        weight = 4.0 if fraction(skill, edit.content, "enthusiasm") < _GULLIBILITY else 1.0
    else:
        weight = 1.5 if asked or edit.op == "delete" else 0.5
    trust = 1.0 if edit.source_type == "failure" else 0.5
    return trust * weight * (0.75 + 0.5 * fraction(skill, edit.content))
