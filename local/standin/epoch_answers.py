"""The stand-in as optimizer at an epoch's end: slow_update, meta_skill, meta_reflect."""

from collections.abc import Iterator, Sequence
from typing import Any

from local.standin.chance import fraction, pick
from local.standin.directives import DIRECTIVES, recognise, siblings, spoken_of
from local.standin.evidence import Toggle, toggles
from local.standin.proposing import JsonEdit, addition, denial, edit, free_tempting, repeated_lines
from local.standin.reflecting import WORTH_A_RULE
from local.standin.remembered import Memory, asked_by, was_accepted
from local.standin.stage_request import StageRequest
from local.standin.subject import Active
from local.standin.subjects import subject_of

_MOST_LINES = 4
_MOST_NEW_LINES = 2
_MOST_MISSING = 2
_GULLIBILITY = 0.2
"""Share of answers in which the guidance gets a tempting rule."""
_EMPTY_GUIDANCE = "- Work through the rules in the order in which they stand."


def slow_update(request: StageRequest) -> dict[str, Any]:
    """Return 1 to 4 lines of guidance: former ones that hold, then what would help; sometimes a tempting one."""
    groups = request.comparison
    active = recognise(request.skill)
    tried = toggles(groups.everything, active)
    kept = _lines_that_hold(request.guidance, tried, active)
    helpful = [toggle for toggle in tried if toggle.gain >= WORTH_A_RULE]
    new = list(_new_lines(request, helpful, active, kept))[:_MOST_NEW_LINES]
    lines = [*kept[: _MOST_LINES - len(new)], *new]
    seed = "|".join([request.skill, request.guidance, *(item.item_id for item in groups.everything)])
    free = free_tempting(active, subject_of(groups.everything))
    if groups.everything and free and fraction(seed, "temptation") < _GULLIBILITY:
        lines = [*lines[: _MOST_LINES - 1], f"- {pick(DIRECTIVES[pick(free, seed, 'tempting')].rules, seed)}"]
    counts = f"{len(groups.persistent_failure)} items still fail and {len(groups.regressed)} got worse"
    reasons = [_reason(toggle.name, active) for toggle in helpful[:_MOST_NEW_LINES]]
    reason = f"{counts}. {' '.join(reasons) if reasons else 'No single rule explains them.'}"
    return {"guidance": "\n".join(lines if lines else [_EMPTY_GUIDANCE]), "reason": reason}


def meta_skill(request: StageRequest) -> dict[str, Any]:
    """Return which directions were accepted and which rejected, and what would help the items that still fail."""
    known = Memory.parse(request.memory).after(request.epoch_steps, ())
    # The request holds no skill: what was accepted is the nearest to what it asks for.
    tried = toggles(request.comparison.failing, frozenset(known.accepted))
    missing = [t.name for t in tried if t.gain >= WORTH_A_RULE and t.name not in known.accepted]
    sound = [name for name in missing if not DIRECTIVES[name].tempting]
    return {"memory": Memory.parse(request.memory).after(request.epoch_steps, sound[:_MOST_MISSING]).text}


def meta_reflect(request: StageRequest) -> dict[str, Any]:
    """Return what the epoch suggests: no line twice, siblings of what was accepted, what was rejected in company."""
    edits = [edit("delete", line, "", "An earlier line asks for the same.") for line in repeated_lines(request.skill)]
    seed = "|".join([request.skill, *(f"{step.step}:{step.action}" for step in request.epoch_steps)])
    names = dict.fromkeys([*_accepted_kin(request), *_rejected_in_company(request)])
    edits += [_proposed(request.skill, name, seed) for name in names]
    return {"edits": edits[: request.budget]}


def _lines_that_hold(guidance: str, tried: Sequence[Toggle], active: Active) -> list[str]:
    """Return lines that speak of directives, none of which would better be the other way round."""
    better_switched = {toggle.name for toggle in tried if toggle.gain >= WORTH_A_RULE}
    kept = []
    for line in guidance.splitlines():
        spoken = spoken_of(line)
        holds = all(on != (name in active) or name not in better_switched for name, on in spoken.items())
        if spoken and holds and line not in kept:
            kept.append(line)
    return kept


def _new_lines(request: StageRequest, helpful: Sequence[Toggle], active: Active, kept: Sequence[str]) -> Iterator[str]:
    """Yield a rule for each directive that would help, or a denial of one that the skill asks for elsewhere."""
    elsewhere = recognise(request.skill.replace(request.guidance, "") if request.guidance else request.skill)
    for toggle in helpful:
        if toggle.name not in active:
            line: str | None = pick(DIRECTIVES[toggle.name].rules, request.skill, toggle.name)
        else:
            line = denial(toggle.name) if toggle.name in elsewhere else None
        if line is not None and f"- {line}" not in kept:
            yield f"- {line}"


def _reason(name: str, active: Active) -> str:
    directive = DIRECTIVES[name]
    return f"This rule leads astray: {directive.rules[0]}" if name in active else directive.reason


def _accepted_kin(request: StageRequest) -> Iterator[str]:
    """Yield directives beside the accepted ones that were not tried yet."""
    steps = request.epoch_steps
    tried = {name for step in steps for tried_edit in step.edits for name in asked_by(tried_edit)}
    barred = tried | recognise(request.skill) | set(Memory.parse(request.meta_skill).rejected)
    for name in (name for step in steps if was_accepted(step) for e in step.edits for name in asked_by(e)):
        yield from (kin for kin in siblings(name) if kin not in barred and not DIRECTIVES[kin].tempting)


def _rejected_in_company(request: StageRequest) -> Iterator[str]:
    """Yield sound directives of rejected steps that were not tried alone."""
    active = recognise(request.skill)
    for step in request.epoch_steps:
        names = [name for tried_edit in step.edits for name in asked_by(tried_edit)]
        if step.action == "reject" and len(names) > 1:
            yield from (name for name in names if name not in active and not DIRECTIVES[name].tempting)


def _proposed(skill: str, name: str, seed: str) -> JsonEdit:
    return addition(skill, name, seed) | {"rationale": f"The epoch points this way. {DIRECTIVES[name].reason}"}
