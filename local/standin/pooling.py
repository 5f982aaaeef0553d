"""The stand-in as optimizer on what several calls gave: merges, rank, learning_rate and consolidate."""

from collections import defaultdict
from typing import Any

from local.standin.chance import fraction
from local.standin.directives import DIRECTIVES, recognise
from local.standin.remembered import Memory
from local.standin.stage_request import ListedEdit, StageRequest
from local.standin.words import key

_GULLIBILITY = 0.25
"""Share of cases in which a tempting rule is ranked far above its support."""
Meaning = tuple[str, tuple[str, ...]]


def merge(request: StageRequest) -> dict[str, Any]:
    """Return one edit for all that mean the same, in order of first mention; with priority, failures go first."""
    edits = list(request.edits)
    if request.priority == "failure-over-success":
        edits.sort(key=lambda edit: edit.source_type != "failure")
    groups: defaultdict[Meaning, list[ListedEdit]] = defaultdict(list)
    for edit in edits:
        groups[_meaning(edit)].append(edit)
    return {"edits": [_united(group) for group in groups.values()]}


def merge_rewrites(request: StageRequest) -> dict[str, Any]:
    """Return the best supported body with the rules that only others brought in; with priority, failures go first."""
    edits = sorted(request.edits, key=lambda edit: -edit.support_count)
    if request.priority == "failure-over-success":
        edits.sort(key=lambda edit: edit.source_type != "failure")
    first, *others = [edit.content.rstrip("\n") for edit in edits]
    lines = first.split("\n")
    for line in (line for body in others for line in body.split("\n") if line not in request.skill.split("\n")):
        if recognise(line) - recognise("\n".join(lines)):
            lines.append(line)
    return {"body": "\n".join(lines) + "\n"}


def rank(request: StageRequest) -> dict[str, Any]:
    """Return all indices, best first: by support, times a belief in the wording that can be wrong."""
    rejected = frozenset(Memory.parse(request.meta_skill).rejected)
    weights = {edit.index: edit.support_count * _belief(edit, request.skill, rejected) for edit in request.edits}
    return {"order": sorted(weights, key=lambda index: (-weights[index], index))}


def learning_rate(request: StageRequest) -> dict[str, Any]:
    """Return as many edits as several minibatches agree on, at least one and at most `most`; one after a rejection."""
    agreed = sum(edit.support_count > 1 for edit in request.edits)
    reason = f"{agreed} of {len(request.edits)} edits were proposed by more than one minibatch."
    if request.step_buffer and request.step_buffer[-1].rejected_edits:
        return {"learning_rate": 1, "reason": f"{reason} The last step was rejected, so this one is small."}
    rate = max(agreed, 1) if request.most is None else min(max(agreed, 1), request.most)
    return {"learning_rate": rate, "reason": reason}


def consolidate(request: StageRequest) -> dict[str, Any]:
    """Return a note for all that ask for the same or have the same words; above `most` the last ones share one.

    Every note with words in it is the source of exactly one.
    """
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, note in enumerate(request.notes):
        if note.strip():
            asked = sorted(recognise(note))
            groups[" ".join(asked) if asked else f"words: {key(note)}"].append(index)
    united = [(request.notes[sources[0]], sources) for sources in groups.values()]
    if request.most is not None and len(united) > request.most:
        first, rest = united[: max(request.most - 1, 0)], united[max(request.most - 1, 0) :]
        text = " ".join(note.strip() for note, _ in rest)
        united = [*first, (text, sorted(index for _, sources in rest for index in sources))]
    notes = [{"text": " ".join(note.split()), "sources": sources} for note, sources in united]
    return {"notes": notes[: request.most]}


def _meaning(edit: ListedEdit) -> Meaning:
    """Return what an edit is about: the directives that it brings in, or else its plain words."""
    if edit.op == "delete":
        return "delete", (key(edit.anchor),)
    asked = tuple(sorted(recognise(edit.content)))
    kind = "replace" if edit.op == "replace" else "add"
    return (kind, (key(edit.anchor),)) if edit.op == "replace" else (kind, asked if asked else (key(edit.content),))


def _united(group: list[ListedEdit]) -> dict[str, Any]:
    best = max(group, key=lambda edit: edit.support_count)
    sources = sorted(edit.index for edit in group)
    return best.model_dump(include={"op", "anchor", "content", "rationale"}) | {"sources": sources}


def _belief(edit: ListedEdit, skill: str, rejected: frozenset[str]) -> float:
    asked = recognise(edit.content)
    if asked & rejected:
        weight = 0.25
    elif any(DIRECTIVES[name].tempting for name in asked):
        weight = 4.0 if fraction(skill, edit.content, "enthusiasm") < _GULLIBILITY else 1.0
    else:
        weight = 1.5 if asked or edit.op == "delete" else 0.5
    trust = 1.0 if edit.source_type == "failure" else 0.5
    return trust * weight * (0.75 + 0.5 * fraction(skill, edit.content))
