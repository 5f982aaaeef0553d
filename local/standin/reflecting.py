"""The stand-in as optimizer, stage reflect: edits that would have helped, and some that only sound so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from local.standin.chance import fraction, pick
from local.standin.directives import DIRECTIVES, recognise, spoken_of
from local.standin.evidence import Toggle, toggles
from local.standin.proposing import JsonEdit, addition, body_of, edit, free_tempting, removal
from local.standin.remembered import Memory
from local.standin.rewriting import worked_in
from local.standin.stage_request import StageRequest
from local.standin.subject import Active, Subject
from local.standin.subjects import subject_of

WORTH_A_RULE = 0.2
"""Gain (see Toggle) from which on a directive is proposed."""
_MOST_NOTES = 2
_MISSING_ANCHOR = "## Checks before answering"
_EMPTY_ADVICE = (
    ("Read every document before you decide.", "A hasty reading may miss the answer."),
    ("Check the spelling of the answer against the documents.", "A misspelt answer does not match."),
    ("Stay with what worked: one clue, one answer.", "The rollouts that went well gave one answer."),
)


@dataclass(frozen=True)
class _Study:
    """The study of a minibatch: every directive tried on it, and which of them are worth an edit."""

    seed: str
    subject: Subject | None
    """None stands for documents."""
    active: Active
    barred: frozenset[str]
    """Directives that were rejected, by the step buffer or by the memory."""
    tried: Sequence[Toggle]
    helpful: Sequence[Toggle]


def reflect(request: StageRequest) -> dict[str, Any]:
    """Return failure patterns and at most `budget` edits; a pure function of the request."""
    return _reflection(request, _study(request))


def reflect_skill_aware(request: StageRequest) -> dict[str, Any]:
    """Reflect, with notes on rules that the skill holds already and that should have been enough."""
    study = _study(request)
    return _reflection(request, study) | {"notes": _notes(request, study)}


def reflect_rewrite(request: StageRequest) -> dict[str, Any]:
    """Reflect, with the proposals worked into the skill's body."""
    answer = reflect(request)
    reasons = list(dict.fromkeys(str(proposed["rationale"]) for proposed in answer["edits"]))
    return {
        "failure_patterns": answer["failure_patterns"],
        "body": worked_in(request.skill, answer["edits"]),
        "rationale": " ".join(reasons) if reasons else "The skill stands as it is.",
    }


def _study(request: StageRequest) -> _Study:
    seed = "|".join([request.skill, request.outcome, *(trajectory.item_id for trajectory in request.trajectories)])
    active, memory, barred = recognise(request.skill), Memory.parse(request.meta_skill), _barred(request)
    subject = subject_of(request.trajectories)
    if request.outcome == "success":
        return _Study(seed, subject, active, barred, (), ())
    tried = toggles(request.trajectories, active)
    helpful = [toggle for toggle in tried if toggle.gain >= WORTH_A_RULE and toggle.name not in barred]
    helpful.sort(key=lambda toggle: toggle.name not in memory.missing)
    most = None if request.budget is None else (request.budget + 1) // 2
    return _Study(seed, subject, active, barred, tried, helpful[:most])


def _reflection(request: StageRequest, study: _Study) -> dict[str, Any]:
    if request.outcome == "success":
        return {"failure_patterns": [], "edits": _protect(request, study)[: request.budget]}
    edits = _corrections(request, study)
    doubtful = _guess(request, study) if _unexplained_kind(request, study) else _doubtful(request, study)
    if doubtful and request.budget is not None:
        edits = edits[: max(request.budget - len(doubtful), 0)]
    edits += doubtful
    return {"failure_patterns": _patterns(request, study), "edits": edits[: request.budget]}


def _barred(request: StageRequest) -> frozenset[str]:
    """Return directives that rejected edits of this epoch were about, or that the memory names as rejected."""
    texts = (
        text for step in request.step_buffer for edit in step.rejected_edits for text in (edit.content, edit.anchor)
    )
    rejected = Memory.parse(request.meta_skill).rejected
    return frozenset(name for text in texts for name in recognise(text)) | frozenset(rejected)


def _patterns(request: StageRequest, study: _Study) -> list[dict[str, Any]]:
    patterns = [
        {"description": DIRECTIVES[toggle.name].reason, "item_ids": list(toggle.fixed)}
        for toggle in study.helpful
        if toggle.fixed
    ]
    rest = _unexplained(request, study)
    if rest:
        patterns.append({"description": "No single rule explains these misses.", "item_ids": rest})
    return patterns


def _unexplained(request: StageRequest, study: _Study) -> list[str]:
    explained = {identity for toggle in study.helpful for identity in toggle.fixed}
    return [trajectory.item_id for trajectory in request.trajectories if trajectory.item_id not in explained]


def _corrections(request: StageRequest, study: _Study) -> list[JsonEdit]:
    proposed = (
        removal(request.skill, toggle.name, study.seed)
        if toggle.name in study.active
        else addition(request.skill, toggle.name, study.seed)
        for toggle in study.helpful
    )
    return [made for made in proposed if made is not None]


def _doubtful(request: StageRequest, study: _Study) -> list[JsonEdit]:
    """Return what a careless optimizer adds: tempting rules, empty advice, an anchor that is not there.

    It adds nothing if it has asked the target, or looks at its draft once more: then it knows better.
    """
    draw = fraction(study.seed, "doubt")
    knows_better = request.drafted or any(trajectory.follow_up is not None for trajectory in request.trajectories)
    if not request.trajectories or knows_better:
        return []
    if draw < 0.25:
        free = free_tempting(study.active | study.barred, study.subject)
        return [addition(request.skill, pick(free, study.seed, "tempting"), study.seed)] if free else []
    if draw < 0.4:
        return [_empty_advice(study)]
    if draw < 0.5:
        return [_empty_advice(study) | {"op": "insert_after", "anchor": _MISSING_ANCHOR}]
    return []


def _unexplained_kind(request: StageRequest, study: _Study) -> bool:
    """Return whether nothing helps, on items that no directive for documents can speak of."""
    readable = study.subject is None and any(trajectory.references for trajectory in request.trajectories)
    return bool(request.trajectories) and not study.helpful and not readable


def _guess(request: StageRequest, study: _Study) -> list[JsonEdit]:
    """Return some rule on the subject if it is not documents, or empty advice: there is no evidence."""
    known = study.active | study.barred
    free = [one.name for one in study.subject.directives if one.name not in known] if study.subject else []
    if free and fraction(study.seed, "guess") < 0.7:
        return [addition(request.skill, pick(free, study.seed, "guess"), study.seed)]
    return [_empty_advice(study)]


def _protect(request: StageRequest, study: _Study) -> list[JsonEdit]:
    """Return what the skill already says, or something empty: these were successes."""
    said = _sound(study.active)
    if said and fraction(study.seed, "protect") < 0.6:
        return [addition(request.skill, pick(said, study.seed, "said"), f"{study.seed}|again")]
    return [_empty_advice(study)]


def _notes(request: StageRequest, study: _Study) -> list[str]:
    """Return rules that the minibatch needs most, where it fails all the same; after successes now and then."""
    if request.outcome == "success":
        said = _sound(study.active)
        kept = [pick(said, study.seed, "note")] if said and fraction(study.seed, "keep") < 0.5 else []
        notes = [f"Keep to this, it works: {pick(DIRECTIVES[name].rules, study.seed, name)}" for name in kept]
    elif _unexplained(request, study):
        notes = [f"Check once more before you answer: {rule}" for rule in _lapsed(request, study)]
    else:
        notes = []
    return [note for note in notes if note not in request.skill]


def _lapsed(request: StageRequest, study: _Study) -> list[str]:
    """Return rules that the skill asks for to good effect; if there are none, one that cannot be put to the test."""
    gains = {toggle.name: toggle.gain for toggle in study.tried}
    needed = sorted((name for name in _sound(study.active) if gains[name] <= 0), key=lambda name: gains[name])
    if needed:
        return [pick(DIRECTIVES[name].rules, study.seed, name) for name in needed[:_MOST_NOTES]]
    lines = [line for line in body_of(request.skill).splitlines() if line.startswith("- ") and not spoken_of(line)]
    return [pick(lines, study.seed, "lapse").removeprefix("- ")] if lines else []


def _sound(active: Active) -> list[str]:
    return sorted(name for name in active if not DIRECTIVES[name].tempting)


def _empty_advice(study: _Study) -> JsonEdit:
    advice, reason = pick(study.subject.empty_advice if study.subject else _EMPTY_ADVICE, study.seed, "advice")
    return edit("append", "", f"- {advice}", reason)
