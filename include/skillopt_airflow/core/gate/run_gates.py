"""The gates of a training, for candidates and for publishing, whose looks at the same items share one level."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pydantic import AwareDatetime, Field

from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.gate.decision import GateDecision, decide
from skillopt_airflow.core.gate.item_scores import Evaluation, count_groups, group_sizes
from skillopt_airflow.core.gate.policies import policy_of, sign_flip_test, sign_test
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Item, ItemRef, Split, Value, canonical_json, sha256

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_LOOK = 0.8
"""Share of alpha for the first look at items."""
MARK = 16
"""Length of the items' hashes in the ledger."""
_NO_CONTENT = re.compile(r"(?:\\[a-z]|\W|_)+")
"""Punctuation and whitespace, including its escapes in JSON."""


class Question(Value):
    """A comparison of two skills (SHA-256) and its method; repeating it on the same rollouts isn't a new look."""

    candidate: str
    rival: str
    samples: int
    metric: str
    policy: str
    alpha: float
    """The significance level for all looks together."""
    settings: str
    """Hash of the items and of all settings that rollouts and scores depend on."""


class Look(Document):
    """One comparison on items of a split, recorded before its result is known."""

    number: int = Field(ge=1)
    """One more than the largest number of earlier looks at one of the items."""
    split: Split
    items: int
    marks: tuple[str, ...]
    question: Question
    run: str
    publication: str
    """Name of the first publication that made this comparison."""
    entered: AwareDatetime

    @property
    def level(self) -> float:
        return level_of(self.number, self.question.alpha)

    def __str__(self) -> str:
        return f"look {self.number} at these {self.items:,} items"


def level_of(number: int, alpha: float) -> float:
    """Return the level of a look (1-based); the levels of any number of looks sum up to at most alpha.

    Most items get one look, so the first one has most of alpha. The others share the rest as 1, 1/4, 1/9 and so on
    (alpha spending: Lan and DeMets, Biometrika 70, 1983).
    """
    if number == 1:
        return FIRST_LOOK * alpha
    return (1 - FIRST_LOOK) * alpha * 6 / (math.pi * (number - 1)) ** 2


def next_number(looks: Iterable[Look], marks: Iterable[str]) -> int:
    """Return the number of the next look at the items with these marks, see `Look.number`."""
    had = Counter(mark for look in looks for mark in look.marks)
    return 1 + max((had[mark] for mark in marks), default=0)


def marks_of(items: Iterable[Item]) -> tuple[str, ...]:
    return tuple(sorted({item_mark(item) for item in items}))


def item_mark(item: Item) -> str:
    """Return a hash of an item's content, without its id.

    Only letters and digits count, regardless of case, so whitespace and file formats make no difference.
    """
    asked = {name: value for name, value in item.public.items() if value != item.id}
    text = canonical_json([asked, [file.sha256 for file in item.files]])
    return sha256(_NO_CONTENT.sub("", text).casefold())[:MARK]


POWER = 0.8
"""Statistical power: the share of candidates with a gain that are accepted."""
TRIALS = 400
STEPS = 200
"""Resolution of gains between 0 and 1."""
SEED = 48
AS_NORMAL = 20
"""Number of groups from which a sum of different sizes with random signs is treated as normally distributed."""


def can_accept(rules: EvaluationGroup, groups: tuple[int, ...]) -> bool:
    """Return whether the gate accepts a candidate that wins all items; for the arguments, see `smallest_gain`."""
    return bool(groups) and (not policy_of(rules.gate_policy).has_level or sign_flip_test(groups) <= rules.gate_alpha)


@cache
def smallest_gain(rules: EvaluationGroup, groups: tuple[int, ...], alike: bool = False) -> float | None:
    """Return the minimum detectable gain of the mean (80% power), by simulation; None if the gate can't accept.

    It assumes the largest variance of scores: answers are right with probability (1 + gain) / 2 under the candidate and
    (1 - gain) / 2 under the current skill, with one outcome per group. If many items are certain, or groups are less
    correlated, the gate detects smaller gains. `groups` are their sizes, 1 for an item without a group. If samples are
    `alike`, as at temperature 0, those of an item count as one.
    """
    if not can_accept(rules, groups):
        return None
    low, high = 0, STEPS
    while high - low > 1:
        middle = (low + high) // 2
        detected = _power(rules, groups, middle / STEPS, 1 if alike else rules.samples) >= POWER
        low, high = (low, middle) if detected else (middle, high)
    return high / STEPS


def _power(rules: EvaluationGroup, groups: tuple[int, ...], gain: float, samples: int) -> float:
    import numpy as np

    random, accepted = np.random.default_rng(SEED), 0
    # In blocks of trials, since there may be 100,000 groups.
    block = max(1, 2_000_000 // len(groups))
    for begin in range(0, TRIALS, block):
        shape = min(block, TRIALS - begin), len(groups)
        mine, theirs = (random.binomial(samples, chance, shape) for chance in ((1 + gain) / 2, (1 - gain) / 2))
        sums = np.array(groups) * (mine - theirs) / samples
        passed = sums.sum(axis=1) > 0
        if policy_of(rules.gate_policy).has_level:
            passed &= _p_values(sums) <= rules.gate_alpha
        accepted += int(passed.sum())
    return accepted / TRIALS


def _p_values(sums: "NDArray[np.float64]") -> "NDArray[np.float64]":
    import numpy as np
    from scipy.special import ndtr

    sizes = np.abs(sums)
    if len(np.unique(sizes[sizes > 0])) <= 1:
        return np.asarray(sign_test((sums > 0).sum(axis=1), (sums != 0).sum(axis=1)))
    if sums.shape[1] < AS_NORMAL:
        return np.array([sign_flip_test(row) for row in sums])
    spread = np.sqrt((sums * sums).sum(axis=1))
    return np.asarray(ndtr(-sums.sum(axis=1) / np.maximum(spread, 1e-300)))


T = TypeVar("T", Item, ItemRef)
HELD_OUT_ONE_IN = 4
"""One in this many groups of the test split is held out from the publish gate."""


class RunGate(NamedTuple):
    """A gate and its split."""

    knob: str
    """Path of the knob with its policy."""
    split: Split
    rules: EvaluationGroup
    look: int = 1
    """Number of the look at these items, which determines the level."""

    @property
    def fewest(self) -> int:
        return policy_of(self.rules.gate_policy).fewest_items(self.rules)


class SmallestGain(Value):
    """The minimum detectable gain of a gate; see `smallest_gain` and `RunGate`."""

    gate: str
    policy: str
    split: Split
    items: int
    groups: int | None
    """Number of the items' groups; None if the items are independent."""
    samples: int
    look: int = 1
    gain: float | None
    """Minimum detectable gain of the mean (80% power); None if the gate can't accept."""
    alike: float | None
    """The same if all samples of an item are equal, as at temperature 0."""

    def __str__(self) -> str:
        of = "" if self.groups is None else f" in {self.groups:,} groups"
        again = "" if self.look == 1 else f", look {self.look} at them"
        found = "no gain" if self.gain is None else f"a gain of {100 * self.gain:.1f} points"
        if self.alike is not None and self.alike != self.gain:
            found += f" ({100 * self.alike:.1f} if all samples of an item are alike)"
        return (
            f"{self.gate} = {self.policy}, {self.items:,} items of the {self.split} split{of}, "
            f"{self.samples} sample{'s' if self.samples > 1 else ''} of each{again}: {found}"
        )


def publish_split(splits: Collection[Split]) -> Split:
    """Return the split for the comparison of candidate and champion: publish if the data has it, else test."""
    return Split.PUBLISH if Split.PUBLISH in splits else Split.TEST


def gates_of(config: TrainConfig, splits: Collection[Split], look: int = 1) -> list[RunGate]:
    """Return the active gates of a training; `look` is the number of the publish gate's look at its items."""
    rules = publishing_rules(config.evaluation, config.publishing, look)
    gates = (
        RunGate("evaluation.gate_policy", Split.VAL, config.evaluation),
        RunGate("publishing.gate_policy", publish_split(splits), rules, look),
    )
    return [gate for gate in gates if gate.rules.use_gate]


def publishing_rules(evaluation: EvaluationGroup, publishing: PublishingGroup, look: int = 1) -> EvaluationGroup:
    """Return a run's scoring rules with the policy of publishing, at the level of a look."""
    level = level_of(look, publishing.gate_alpha)
    policy = {"use_gate": True, "gate_policy": publishing.gate_policy, "gate_alpha": level, "gate_protected_items": ()}
    return evaluation.model_copy(update=policy | {"samples": publishing.samples})


def decide_publication(
    candidate: Evaluation, rival: Evaluation, evaluation: EvaluationGroup, publishing: PublishingGroup, look: Look
) -> GateDecision:
    """Decide whether the candidate becomes the champion; the reason names the look and its level."""
    decision = decide(candidate, rival, rival, publishing_rules(evaluation, publishing, look.number))
    level = level_at(look)
    seen = f"{decision.reason}; {look}{'' if level is None else f', level {level:.2g}'}"
    return decision.model_copy(update={"reason": seen})


def level_at(look: Look) -> float | None:
    """Return the level of a look; None under a policy without one."""
    return look.level if policy_of(look.question.policy).has_level else None


def deciding_items(split: Split, items: Sequence[T]) -> list[T]:
    """Return the items of a split on which the publish gate decides; the published score comes from the others.

    The gate uses all of a split `publish`, and then the test split gives the published score. If the gate uses the test
    split, one group in HELD_OUT_ONE_IN is held out, because scores that passed a gate have an optimistic bias.
    """
    return [item for item in items if split is Split.PUBLISH or not _held_out(item)]


def held_out_items(items: Sequence[T]) -> list[T]:
    return [item for item in items if _held_out(item)]


def _held_out(item: Item | ItemRef) -> bool:
    """Decide by a hash, so it's always the same items, and whole groups."""
    return int(sha256(item.group or item.id)[:8], 16) % HELD_OUT_ONE_IN == 0


def check_groups(config: TrainConfig, groups: Mapping[Split, Sequence[str]]) -> None:
    """Raise ConfigError for a gate that can accept nothing, because its items have too few groups.

    `groups` has the group of each item, empty for an item without one.
    """
    for gate in gates_of(config, groups):
        if problem := why_unpassable(gate.rules, groups[gate.split]):
            raise ConfigError(
                f"{gate.knob} = {gate.rules.gate_policy} could accept nothing: the items of the {gate.split} split "
                f"{problem}. Add more data, or choose another policy"
            )


def why_unpassable(rules: EvaluationGroup, groups: Sequence[str]) -> str:
    """Return the reason why a gate can accept nothing, whatever the scores; empty if it can."""
    sizes, fewest = group_sizes(groups), policy_of(rules.gate_policy).fewest_items(rules)
    if len(sizes) < fewest:
        return f"come from {len(sizes)} groups, and it needs at least {fewest}"
    if not can_accept(rules, sizes):
        return f"come from {len(sizes)} groups, and winning all of them isn't enough, since one has {max(sizes)} items"
    return ""


def smallest_gains(
    config: TrainConfig, groups: Mapping[Split, Sequence[str]], look: int = 1
) -> tuple[SmallestGain, ...]:
    """Return each gate's minimum detectable gain; for the arguments, see `check_groups` and `gates_of`."""
    return tuple(
        SmallestGain(
            look=gate.look,
            gate=gate.knob,
            policy=gate.rules.gate_policy,
            split=gate.split,
            items=len(groups[gate.split]),
            groups=count_groups(groups[gate.split]),
            samples=gate.rules.samples,
            gain=smallest_gain(gate.rules, group_sizes(groups[gate.split])),
            alike=smallest_gain(gate.rules, group_sizes(groups[gate.split]), alike=True),
        )
        for gate in gates_of(config, groups, look)
    )
