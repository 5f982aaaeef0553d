"""Simulations of publishing skills chosen on a selection split, with known truth."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from bench import tables
from bench.truth_worlds import evaluation_of
from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.decision import judge
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.gate.paired import interval
from skillopt_airflow.core.gate.policies import Evidence
from skillopt_airflow.core.gate.run_gates import HELD_OUT_ONE_IN, publishing_rules

Rates = NDArray[np.float64]

CANDIDATES = 40
"""Candidates per search."""
TRIES = 10
"""Searches in sequence, each with an attempt to publish against the same champion."""
SEED = 42
MEAN = 0.5
"""True rate of right answers of the champion."""
REWRITTEN = 0.2
"""Share of items whose answers an edit changes with a deterministic target."""
EFFECT = 0.02
"""Standard deviation of an edit's effect on the rate of right answers."""
TRIALS: Mapping[int, int] = {17: 500, 40: 500, 200: 400, 1000: 160}
"""Champions per row by items per split."""


@dataclass(frozen=True)
class Answers:
    """Distribution of answers; without `effect`, all skills equal the champion."""

    mixed: bool = False
    """Rates vary between items from 0 to 1; else every answer is a coin toss."""
    fixed: bool = False
    """Deterministic target: the same answer in every sample."""
    effect: float = 0.0


ANSWERS: Mapping[str, Answers] = {
    "coins": Answers(),
    "mixed": Answers(mixed=True),
    "deterministic target": Answers(mixed=True, fixed=True),
    "coins, edits help or harm": Answers(effect=EFFECT),
}
Search = Literal["40 side by side", "40 steps"]
SEARCHES: tuple[Search, ...] = ("40 side by side", "40 steps")
Case = tuple[str, int, int, Search]
"""Answers, items, samples, and search of a row."""


class Skill(NamedTuple):
    """Rates of right answers by item in two splits, and the true rate."""

    val: Rates
    test: Rates
    rate: float


class Contest(NamedTuple):
    """A search's best skill and the champion, with their evaluations on the test split."""

    best: Skill
    champion: Skill
    measured: Evaluation
    rival: Evaluation


class Attempt(NamedTuple):
    """An attempt to publish a search's best skill."""

    published: bool
    """exact_paired accepts it on the test split, at the level of its look."""
    on_val: bool
    """exact_paired at 0.05 accepts it on new samples of the selection split; only for the first attempt."""
    better: bool
    """It is truly better than the champion."""
    too_high: float
    """Bias of the published score, from held-out items."""
    too_high_where_decided: float
    """Bias of the score from the items of the publish gate."""
    too_high_on_val: float
    held: bool
    """The published interval contains the truth."""


@cache
def rules(samples: int, look: int) -> EvaluationGroup:
    return publishing_rules(EvaluationGroup(gate_metric="soft"), PublishingGroup(samples=samples), look)


def sections(spread: Callable[..., Iterable[Any]], trials: Mapping[int, int]) -> list[tables.Section]:
    """Return the tables; `spread` is `map` in one or several processes."""
    cases: list[Case] = [
        (answers, items, samples, search)
        for items in trials
        for answers, world in ANSWERS.items()
        for samples in (1, 3)
        # Without effects of edits, the kind of search doesn't matter.
        for search in (SEARCHES if world.fixed or world.effect else SEARCHES[:1])
    ]
    found = spread(searched, *zip(*cases, strict=True), [trials[items] for _, items, _, _ in cases])
    by_case = dict(zip(cases, found, strict=True))
    counts = ", ".join(f"{count:,} with {items:,} items" for items, count in trials.items())
    note = (
        f"{CANDIDATES} candidates are measured on a selection split, and the best one is published if it passes the "
        f"gate on a test split of as many items; {TRIES} times against the same champion. Champions a row: {counts}. "
        "Side by side, candidates are changes of the champion; in steps, each is one of the best before it."
    )
    return [_no_better(by_case, note), _moving(by_case)]


def searched(answers: str, items: int, samples: int, search: Search, trials: int) -> list[list[Attempt]]:
    return [attempts(answers, items, samples, search, (SEED, items, samples, trial)) for trial in range(trials)]


def _no_better(by_case: Mapping[Case, list[list[Attempt]]], note: str) -> tables.Section:
    return tables.Section(
        "Skills that were chosen, and are no better than the champion",
        f"{note} Share that is published by the first try and by all of them together, and what fresh samples of the "
        "selection split would have let pass. Then the promised score and the one that the skill was chosen by, less "
        "the truth, in points, and the share of the promised intervals that hold the truth.",
        (
            *("items", "answers", "samples", "candidates"),
            *(f"exact_paired, {tries}" for tries in ("first try", f"{TRIES} tries")),
            *("exact_paired on the selection split", "promised", "selection split", "interval holds"),
        ),
        [
            (
                *(items, answers, samples, search),
                *(_percent(any(one.published for one in tried[:most]) for tried in found) for most in (1, TRIES)),
                _percent(tried[0].on_val for tried in found if tried),
                *(f"{100 * mean(errors):+.1f}" for errors in _errors(found)),
                _percent(one.held for tried in found for one in tried),
            )
            for (answers, items, samples, search), found in by_case.items()
            if not ANSWERS[answers].effect
        ],
    )


def _moving(by_case: Mapping[Case, list[list[Attempt]]]) -> tables.Section:
    return tables.Section(
        "Skills that were chosen, where edits help or harm",
        f"An edit changes the rate of right answers by {100 * EFFECT:g} points, in the root mean square. Share of the "
        "skills that exact_paired publishes at the first try. Of these: the share that is no better than the champion, "
        "the promised score less the truth, in points, the same of the score by which the gate decided, and the share "
        "of the promised intervals that hold the truth.",
        ("items", "samples", "candidates", "published", "no better", "promised", "where it decided", "interval holds"),
        [
            (
                items,
                samples,
                search,
                _percent(tried[0].published for tried in found if tried),
                *_of_published(_published(found)),
            )
            for (answers, items, samples, search), found in by_case.items()
            if ANSWERS[answers].effect
        ],
    )


def _of_published(published: Sequence[Attempt]) -> tuple[str, str, str, str]:
    if not published:
        return "", "", "", ""
    return (
        _percent(not one.better for one in published),
        f"{100 * mean(one.too_high for one in published):+.1f}",
        f"{100 * mean(one.too_high_where_decided for one in published):+.1f}",
        _percent(one.held for one in published),
    )


def _errors(found: Sequence[Sequence[Attempt]]) -> tuple[list[float], list[float]]:
    attempts = [one for tried in found for one in tried]
    return [one.too_high for one in attempts], [one.too_high_on_val for one in attempts]


def _published(found: Sequence[Sequence[Attempt]]) -> list[Attempt]:
    return [tried[0] for tried in found if tried and tried[0].published]


def _percent(outcomes: Iterable[bool]) -> str:
    counted = list(outcomes)
    return f"{100 * mean(counted):.1f} %" if counted else ""


def attempts(answers: str, items: int, samples: int, search: Search, seed: Sequence[int]) -> list[Attempt]:
    """Search TRIES times for a skill that beats one champion; a search without a better skill makes no attempt."""
    world, random = ANSWERS[answers], default_rng(seed)
    base = [random.random(items) if world.mixed else np.full(items, MEAN) for _ in ("val", "test")]
    val, test = (_answered(rates, world, random) for rates in base)
    champion = Skill(val, test, MEAN)
    # All attempts reuse the champion's stored rollouts.
    measured = _measured(champion.test, samples, random)
    found: list[Attempt] = []
    for _ in range(TRIES):
        best, score = _searched(champion, base, world, samples, search, random)
        if best is not champion:
            contest = Contest(best, champion, _measured(best.test, samples, random), measured)
            found.append(_attempt(contest, score, samples, len(found) + 1, random))
    return found


def _searched(
    champion: Skill, base: Sequence[Rates], world: Answers, samples: int, search: Search, random: Generator
) -> tuple[Skill, float]:
    """Return the skill with the highest selection score, and that score."""
    best, highest = champion, float(_drawn(champion.val, samples, random).mean())
    for _ in range(CANDIDATES):
        candidate = _edited(champion if search == "40 side by side" else best, base, world, search, random)
        score = float(_drawn(candidate.val, samples, random).mean())
        if score > highest:
            best, highest = candidate, score
    return best, highest


def _edited(skill: Skill, base: Sequence[Rates], world: Answers, search: Search, random: Generator) -> Skill:
    if world.effect:
        change = random.normal(0.0, world.effect)
        val, test = (np.clip(rates + change, 0.0, 1.0) for rates in (skill.val, skill.test))
        return Skill(val, test, min(1.0, max(0.0, skill.rate + change)))
    if not world.fixed:
        # A new object with the same answers.
        return Skill(*skill)
    share = 1.0 if search == "40 side by side" else REWRITTEN
    val, test = (
        np.where(random.random(len(old)) < share, _answered(rates, world, random), old)
        for old, rates in zip((skill.val, skill.test), base, strict=True)
    )
    return Skill(val, test, skill.rate)


def _attempt(contest: Contest, selected_by: float, samples: int, look: int, random: Generator) -> Attempt:
    best, champion = contest.best, contest.champion
    at_level = rules(samples, look)
    once = at_level.model_copy(update={"gate_alpha": PublishingGroup().gate_alpha})
    decided, rival = (_part(one, promises=False) for one in (contest.measured, contest.rival))
    evidence, promise = Evidence(decided, rival, once), _part(contest.measured, promises=True)
    low, high = interval(promise, once)
    return Attempt(
        published=judge(evidence, at_level).action.accepted,
        on_val=look == 1 and _accepted_on_val(best, champion, once, samples, random),
        better=best.rate > champion.rate,
        too_high=promise.gate_mean(once) - best.rate,
        too_high_where_decided=evidence.table.score - best.rate,
        too_high_on_val=selected_by - best.rate,
        held=low <= best.rate <= high,
    )


def _part(evaluation: Evaluation, *, promises: bool) -> Evaluation:
    """Return the items that are held out from the gate (one of HELD_OUT_ONE_IN), or the others."""
    scores = [(item, score) for place, (item, score) in enumerate(sorted(evaluation.scores.items()))
              if (place % HELD_OUT_ONE_IN == 0) is promises]  # fmt: skip
    return evaluation.model_copy(update={"scores": dict(scores)})


def _accepted_on_val(best: Skill, champion: Skill, once: EvaluationGroup, samples: int, random: Generator) -> bool:
    measured, against = (_measured(skill.val, samples, random) for skill in (best, champion))
    return judge(Evidence(measured, against, once), once).action.accepted


def _answered(rates: Rates, world: Answers, random: Generator) -> Rates:
    """Return the items' rates, or a deterministic target's answers."""
    return (random.random(len(rates)) < rates).astype(float) if world.fixed else rates


def _drawn(rates: Rates, samples: int, random: Generator) -> Rates:
    drawn: Rates = random.binomial(samples, rates) / samples
    return drawn


def _measured(rates: Rates, samples: int, random: Generator) -> Evaluation:
    return evaluation_of(_drawn(rates, samples, random).tolist())
