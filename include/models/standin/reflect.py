"""The stand-in as optimizer, stage reflect: edits that would have helped, and some that only sound so."""

from collections.abc import Sequence
from typing import Any

from include.models.standin.chance import fraction, pick
from include.models.standin.directives import DIRECTIVES, recognise
from include.models.standin.evidence import Toggle, toggles
from include.models.standin.ranking import Active
from include.models.standin.requests import ReflectRequest

JsonEdit = dict[str, Any]
_WORTH_AN_EDIT = 0.2
_MISSING_ANCHOR = "## Checks before answering"
_EMPTY_ADVICE = (
    ("Read every document before you decide.", "A hasty reading may miss the answer."),
    ("Check the spelling of the answer against the documents.", "A misspelt answer does not match."),
    ("Stay with what worked: one clue, one answer.", "The rollouts that went well gave one answer."),
)


def reflect(request: ReflectRequest) -> dict[str, Any]:
    """Failure patterns and at most `budget` edits; a pure function of the request."""
    seed = "|".join([request.skill, request.outcome, *(trajectory.item_id for trajectory in request.trajectories)])
    active = recognise(request.skill)
    if request.outcome == "success":
        return {"failure_patterns": [], "edits": _protect(request, active, seed)[: request.budget]}
    barred = _barred(request)
    tried = [toggle for toggle in toggles(request.trajectories, active) if toggle.name not in barred]
    helpful = [toggle for toggle in tried if toggle.gain >= _WORTH_AN_EDIT][: (request.budget + 1) // 2]
    edits = _corrections(request, helpful, active, seed)
    doubtful = _doubtful(request, active, barred, seed)
    if doubtful:
        edits = [*edits[: max(request.budget - len(doubtful), 0)], *doubtful]
    return {"failure_patterns": _patterns(helpful, request), "edits": edits[: request.budget]}


def _barred(request: ReflectRequest) -> frozenset[str]:
    """Directives that rejected edits of this epoch were about."""
    texts = (
        text for step in request.step_buffer for edit in step.rejected_edits for text in (edit.content, edit.anchor)
    )
    return frozenset(name for text in texts for name in recognise(text))


def _patterns(helpful: Sequence[Toggle], request: ReflectRequest) -> list[dict[str, Any]]:
    patterns = [
        {"description": DIRECTIVES[toggle.name].reason, "item_ids": list(toggle.fixed)}
        for toggle in helpful
        if toggle.fixed
    ]
    explained = {identity for toggle in helpful for identity in toggle.fixed}
    rest = [trajectory.item_id for trajectory in request.trajectories if trajectory.item_id not in explained]
    if rest:
        patterns.append({"description": "No single rule explains these misses.", "item_ids": rest})
    return patterns


def _corrections(request: ReflectRequest, helpful: Sequence[Toggle], active: Active, seed: str) -> list[JsonEdit]:
    edits: list[JsonEdit] = []
    for toggle in helpful:
        if toggle.name not in active:
            edits.append(_addition(request.skill, toggle.name, seed))
        else:
            line = _line_of(request.skill, toggle.name)
            if line is not None:
                edits.append(_removal(toggle.name, line, request.skill, seed))
    return edits


def _addition(skill: str, name: str, seed: str) -> JsonEdit:
    """A rule for a directive: behind the last rule of the skill if there is one and chance agrees, else at the end."""
    directive = DIRECTIVES[name]
    rule = f"- {pick(directive.rules, seed, name)}"
    rules = [line for line in skill.splitlines() if line.startswith("- ")]
    if rules and fraction(seed, name, "place") < 0.5:
        return _edit("insert_after", rules[-1], rule, directive.reason)
    return _edit("append", "", rule, directive.reason)


def _removal(name: str, line: str, skill: str, seed: str) -> JsonEdit:
    """Delete the line that asks for a directive, or keep what else it says."""
    others = recognise(line) - {name}
    reason = f"This rule led astray: {line.removeprefix('- ').rstrip('.')}."
    if others:
        kept = "\n".join(f"- {DIRECTIVES[other].rules[0]}" for other in sorted(others))
        return _edit("replace", line, kept, reason)
    if name in {"first_document", "last_document"} and "matching_documents" not in recognise(skill):
        rule = pick(DIRECTIVES["matching_documents"].rules, seed, name)
        return _edit("replace", line, f"- {rule}", reason)
    return _edit("delete", line, "", reason)


def _line_of(skill: str, name: str) -> str | None:
    return next((line for line in skill.splitlines() if name in recognise(line)), None)


def _doubtful(request: ReflectRequest, active: Active, barred: frozenset[str], seed: str) -> list[JsonEdit]:
    """What a careless optimizer adds: tempting rules, empty advice, an anchor that is not there."""
    draw = fraction(seed, "doubt")
    if draw < 0.25:
        tempting = [n for n, directive in DIRECTIVES.items() if directive.tempting and not directive.on_choices]
        free = [name for name in tempting if name not in active and name not in barred]
        return [_addition(request.skill, pick(free, seed, "tempting"), seed)] if free else []
    if draw < 0.4:
        advice, reason = pick(_EMPTY_ADVICE, seed, "advice")
        return [_edit("append", "", f"- {advice}", reason)]
    if draw < 0.5:
        advice, reason = pick(_EMPTY_ADVICE, seed, "lost")
        return [_edit("insert_after", _MISSING_ANCHOR, f"- {advice}", reason)]
    return []


def _protect(request: ReflectRequest, active: Active, seed: str) -> list[JsonEdit]:
    """After successes: say again what the skill already says, or something empty."""
    said = sorted(name for name in active if not DIRECTIVES[name].tempting)
    if said and fraction(seed, "protect") < 0.6:
        name = pick(said, seed, "said")
        return [_addition(request.skill, name, f"{seed}|again")]
    advice, reason = pick(_EMPTY_ADVICE, seed, "advice")
    return [_edit("append", "", f"- {advice}", reason)]


def _edit(op: str, anchor: str, content: str, rationale: str) -> JsonEdit:
    return {"op": op, "anchor": anchor, "content": content, "rationale": rationale}
