"""Simulations of gates and intervals with known truth: error rates, power, and coverage."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from random import Random
from typing import Any

from bench import tables, truth_publishing
from bench.truth_worlds import WORLDS, Contest
from skillopt_airflow.core.config.training_groups import GATE_POLICIES, EvaluationGroup
from skillopt_airflow.core.gate.decision import decide, judge
from skillopt_airflow.core.gate.paired import interval, paired, signs
from skillopt_airflow.core.gate.policies import Evidence, sign_test
from skillopt_airflow.core.gate.run_gates import level_of, smallest_gain

SEED = 42
ALPHA = 0.05
SIZES = (17, 40, 200)
TRIALS: Mapping[int, int] = {17: 2000, 40: 2000, 200: 1000, 1000: 300}
"""Trials per row by number of items."""
FIRST_LOOK = "exact_paired, first look"
TESTS = ("exact_paired", "signs alone", FIRST_LOOK)
"""The test of means, the sign test, and the test of means at the level of a first look."""
TEXTS = ("ten items a text", "texts of unequal size (Zipf)")
TIMEOUTS = ("timeouts among losses", "timeouts among the current skill's wins")
OFTEN_A_LITTLE = "a little better on nine items of ten, much worse on one"

ROUNDING = 1e-12
Spread = Callable[..., Iterable[Any]]
"""`map` in one or several processes."""


@cache
def rules(policy: str, samples: int) -> EvaluationGroup:
    knobs = {"gate_policy": policy, "gate_metric": "soft", "samples": samples}
    return EvaluationGroup.model_validate(knobs)


def rates(world: str, items: int, samples: int, trials: int) -> dict[str, float]:
    """Return the false positive rate by policy."""
    random, accepted = _random(world, items, samples), Counter[str]()
    for _ in range(trials):
        contest = Contest.of(WORLDS[world], items, 0.0, random)
        accepted.update(_accepting(contest, samples, random))
    return {name: accepted[name] / trials for name in GATE_POLICIES}


def found(world: str, items: int, samples: int, gain: float, trials: int) -> dict[str, float]:
    """Return the share of candidates with a gain (or a loss) that each of TESTS accepts."""
    random, accepted = _random(world, items, samples, gain), Counter[str]()
    for _ in range(trials):
        contest = (
            Contest.often_a_little(items, gain, random)
            if world == OFTEN_A_LITTLE
            else Contest.of(WORLDS[world], items, gain, random)
        )
        candidate, current = contest.measured(samples, random)
        chosen = rules("exact_paired", samples)
        evidence = Evidence(candidate, current, chosen)
        wins, losses = signs(evidence.differences.values())
        first = chosen.model_copy(update={"gate_alpha": level_of(1, ALPHA)})
        accepted["exact_paired"] += judge(evidence, chosen).action.accepted
        accepted[FIRST_LOOK] += judge(evidence, first).action.accepted
        accepted["signs alone"] += evidence.table.better and sign_test(wins, wins + losses) <= ALPHA
    return {name: accepted[name] / trials for name in TESTS}


def covered(world: str, items: int, samples: int, gain: float, trials: int) -> tuple[float, float, float, float]:
    """Return coverage and mean width of the intervals of differences and of scores."""
    random, held, width = _random(world, items, samples, gain, "intervals"), [0, 0], [0.0, 0.0]
    one = rules("strict", samples)
    for _ in range(trials):
        contest = Contest.of(WORLDS[world], items, gain, random)
        candidate, current = contest.measured(samples, random)
        table, score = paired(candidate, current, one), interval(candidate, one)
        truths = Contest.truth(WORLDS[world], gain)
        for place, (low, high) in enumerate(((table.low, table.high), score)):
            held[place] += low <= truths[place] + ROUNDING and truths[place] - ROUNDING <= high
            width[place] += high - low
    return held[0] / trials, width[0] / trials, held[1] / trials, width[1] / trials


def sections(trials: Mapping[int, int]) -> list[tables.Section]:
    """Return all tables, simulated on all cores."""
    with ProcessPoolExecutor() as pool:
        made = [make(pool.map, trials) for make in (_do_nothing, _skewed, _gains, _intervals, _smallest)]
        return made + truth_publishing.sections(pool.map, truth_publishing.TRIALS)


def measure() -> None:
    """Write the tables; needs no platform."""
    counts = ", ".join(f"{count:,} with {items:,} items" for items, count in TRIALS.items())
    note = (
        "Simulations of the project's own functions at their defaults (alpha 0.05). "
        f"Candidates a row: {counts}; of "
        "1,000 candidates a share of 5 % is known to 1.4 points. No skill was chosen by the items that it is tested on."
    )
    tables.write_sections("truth", "How often gates and intervals are right", note, sections(TRIALS))


def _do_nothing(spread: Spread, trials: Mapping[int, int]) -> tables.Section:
    worlds = ("coins", "mixed: any rate from 0 to 1", "a third coins, the rest certain", "deterministic target")
    cases = [(world, items, samples) for items in SIZES for world in (*worlds, "partial credit") for samples in (1, 3)]
    cases += [(world, items, samples) for world in TEXTS for items in SIZES[1:] for samples in (1, 3)]
    cases += [(world, items, 1) for world in TIMEOUTS for items in SIZES[1:]]
    shares = spread(rates, *zip(*cases, strict=True), [trials[items] for _, items, _ in cases])
    return tables.Section(
        "Candidates that change nothing",
        "Share that is accepted. strict is no test.",
        ("items", "answers", "samples", *GATE_POLICIES),
        [
            (items, world, samples, *map(_percent, found.values()))
            for (world, items, samples), found in zip(cases, shares, strict=True)
        ],
    )


def _skewed(spread: Spread, trials: Mapping[int, int]) -> tables.Section:
    cases = [(OFTEN_A_LITTLE, items, 1, gain) for items in SIZES for gain in (0.0, -0.02)]
    cases += [("coins", items, samples, -0.02) for items in SIZES for samples in (1, 3)]
    return tables.Section(
        "Candidates that are as good in the mean, or 2 points worse",
        "Share that is accepted, by the test of means and by that of wins against losses. Where losses are large and "
        "rare, few items may show none of them, and no test holds its level.",
        ("items", "candidate", "samples", "gain", *TESTS),
        _found(spread, cases, trials),
    )


def _gains(spread: Spread, trials: Mapping[int, int]) -> tables.Section:
    worlds = ("coins", "mixed: any rate from 0 to 1")
    cases = [
        (world, items, samples, gain)
        for items in SIZES[1:]
        for world in worlds
        for samples in (1, 3)
        for gain in (0.05, 0.1)
    ]
    return tables.Section(
        "Candidates that are better",
        "Share that is accepted: the power of the test of means beside that of wins against losses, and at the level "
        f"of the first look of a publication, {level_of(1, ALPHA):.2g}.",
        ("items", "answers", "samples", "gain", *TESTS),
        _found(spread, cases, trials),
    )


def _intervals(spread: Spread, trials: Mapping[int, int]) -> tables.Section:
    kinds = [
        *(("coins", samples, gain) for samples in (1, 3) for gain in (0.0, 0.1)),
        *(("mixed: any rate from 0 to 1", samples, 0.1) for samples in (1, 3)),
        ("deterministic target", 3, 0.1),
        ("partial credit", 1, 0.1),
        ("all wrong", 1, 0.05),
        ("all wrong", 1, 0.2),
        ("nearly all right", 3, 0.0),
    ]
    cases = [(world, items, samples, gain) for items in (*SIZES, 1000) for world, samples, gain in kinds]
    cases += [(world, items, 1, 0.1) for world in TEXTS for items in (40, 200, 1000)]
    shares = spread(covered, *zip(*cases, strict=True), [trials[items] for _, items, _, _ in cases])
    return tables.Section(
        "95 % intervals",
        "Share that holds the truth, and mean width in points. Where all is wrong under the current skill, the "
        "candidate only wins.",
        ("items", "answers", "samples", "gain", "of the difference", "width", "of the candidate's score", "width"),
        [
            (items, world, samples, f"{100 * gain:+.0f}", *(f"{100 * share:.1f}" for share in found))
            for (world, items, samples, gain), found in zip(cases, shares, strict=True)
        ],
    )


def _smallest(spread: Spread, trials: Mapping[int, int]) -> tables.Section:
    kinds = [("coins", 1), ("coins", 3), ("coins, an item's samples all alike", 3)]
    cases = [(world, items, samples) for items in (*SIZES, 1000) for world, samples in kinds]
    shares = spread(_at_smallest, *zip(*cases, strict=True), [trials[items] for _, items, _ in cases])
    return tables.Section(
        "The minimum detectable gain that a run states",
        "In points, and the share of candidates with that gain that exact_paired accepts, which is to be 80 %. Every "
        "answer is a coin's toss.",
        ("items", "answers", "samples", "minimum detectable gain", "accepted"),
        [
            (items, world, samples, f"{100 * gain:.1f}", _percent(share))
            for (world, items, samples), (gain, share) in zip(cases, shares, strict=True)
        ],
    )


def _at_smallest(world: str, items: int, samples: int, trials: int) -> tuple[float, float]:
    gain = smallest_gain(rules("exact_paired", samples), (1,) * items, WORLDS[world].fixed)
    assert gain is not None
    return gain, found(world, items, samples, gain, trials)["exact_paired"]


def _found(
    spread: Spread, cases: Sequence[tuple[str, int, int, float]], trials: Mapping[int, int]
) -> list[Sequence[object]]:
    shares = spread(found, *zip(*cases, strict=True), [trials[items] for _, items, _, _ in cases])
    return [
        (items, world, samples, f"{100 * gain:+.0f}", *map(_percent, each.values()))
        for (world, items, samples, gain), each in zip(cases, shares, strict=True)
    ]


def _accepting(contest: Contest, samples: int, random: Random) -> list[str]:
    candidate, current = contest.measured(samples, random)
    return [name for name in GATE_POLICIES if decide(candidate, current, current, rules(name, samples)).action.accepted]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _random(*case: object) -> Random:
    return Random(f"{SEED}, {case}")  # noqa: S311
