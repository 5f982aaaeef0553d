"""The gates of a training: of each candidate, and of publishing, whose looks at the same items share one level."""

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
from skillopt_airflow.core.gate.policies import POLICIES, policy_of, sign_flip_test, sign_test
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Item, ItemRef, Split, Value, canonical_json, sha256

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_LOOK = 0.8
"""Share of alpha that the first look at some items has."""
MARK = 16
"""Digits of an item's hash that the ledger keeps."""
_NO_CONTENT = re.compile(r"(?:\\[a-z]|\W|_)+")
"""In JSON, escapes of whitespace among it."""


class Question(Value):
    """A comparison of two skills and its method; asked again about the same rollouts it is the same look."""

    candidate: str
    """SHA-256 of the skill."""
    rival: str
    """SHA-256 of the skill to beat."""
    draws: int
    metric: str
    policy: str
    alpha: float
    """The level that all looks together are to keep."""
    settings: str
    """Hash of the items, and of all else that makes rollouts new, or a score of them."""


class Look(Document):
    """One comparison on items of a split, entered before its result is known."""

    number: int = Field(ge=1)
    """One more than the most earlier looks that one of the items had."""
    split: Split
    items: int
    """Items that are looked at."""
    marks: tuple[str, ...]
    """Marks of these items."""
    question: Question
    run: str
    publication: str
    """Name of the attempt to publish that asked first."""
    entered: AwareDatetime
    """UTC."""

    @property
    def level(self) -> float:
        return level_of(self.number, self.question.alpha)

    def __str__(self) -> str:
        return f"look {self.number} at these {self.items:,} items"


def level_of(number: int, alpha: float) -> float:
    """Return the level of a look (1-based): those of all looks, however many there will be, sum up to alpha.

    Most items are looked at once, so the first look has most of alpha. The others share the rest as 1, 1/4, 1/9 and so
    on (alpha spending: Lan and DeMets, Biometrika 70, 1983).
    """
    if number == 1:
        return FIRST_LOOK * alpha
    return (1 - FIRST_LOOK) * alpha * 6 / (math.pi * (number - 1)) ** 2


def next_number(looks: Iterable[Look], marks: Iterable[str]) -> int:
    """Return the number of the next look at items with these marks: one more than the most that one of them had."""
    had = Counter(mark for look in looks for mark in look.marks)
    return 1 + max((had[mark] for mark in marks), default=0)


def marks_of(items: Iterable[Item]) -> tuple[str, ...]:
    return tuple(sorted({item_mark(item) for item in items}))


def item_mark(item: Item) -> str:
    """Return a hash of what an item asks, whatever its id, its place and the knobs of a run.

    Only letters and digits count, in either case, so that whitespace and the format of the file make no difference.
    """
    asked = {name: value for name, value in item.public.items() if value != item.id}
    text = canonical_json([asked, [file.sha256 for file in item.files]])
    return sha256(_NO_CONTENT.sub("", text).casefold())[:MARK]


POWER = 0.8
"""Share of candidates with the gain that are to be accepted."""
TRIALS = 400
STEPS = 200
"""Steps from no gain to one of 1, to which gains are found."""
SEED = 48
AS_NORMAL = 20
"""Groups from which on the sum with random signs counts as normal where their differences have different sizes."""


def can_accept(rules: EvaluationGroup, groups: tuple[int, ...]) -> bool:
    """Return whether the gate accepts a candidate that wins every item; the arguments are those of `smallest_gain`."""
    return bool(groups) and (not policy_of(rules).has_level or sign_flip_test(groups) <= rules.gate_alpha)


@cache
def smallest_gain(rules: EvaluationGroup, groups: tuple[int, ...], alike: bool = False) -> float | None:
    """Return the smallest gain of the mean that the gate finds with 80 % power, by simulation; None if there is none.

    Of all worlds it is the one in which scores vary most: every answer is a coin's toss, of the candidate with a chance
    of (1 + gain) / 2 and of the current skill with (1 - gain) / 2, and the items of a group share one toss. Where many
    items are certain, or those of a group do not all hang together, smaller gains are found.

    Args:
        rules: say the policy, its level, and the draws of each item.
        groups: sizes of the items' groups, 1 for an item without one.
        alike: whether all draws of an item are alike, as at temperature 0; they tell no more than one.
    """
    if not can_accept(rules, groups):
        return None
    low, high = 0, STEPS
    while high - low > 1:
        middle = (low + high) // 2
        found = _power(rules, groups, middle / STEPS, 1 if alike else rules.draws) >= POWER
        low, high = (low, middle) if found else (middle, high)
    return high / STEPS


def _power(rules: EvaluationGroup, groups: tuple[int, ...], gain: float, draws: int) -> float:
    import numpy as np

    random, accepted = np.random.default_rng(SEED), 0
    # A block of trials at a time, since there may be 100,000 groups.
    block = max(1, 2_000_000 // len(groups))
    for begin in range(0, TRIALS, block):
        shape = min(block, TRIALS - begin), len(groups)
        mine, theirs = (random.binomial(draws, chance, shape) for chance in ((1 + gain) / 2, (1 - gain) / 2))
        sums = np.array(groups) * (mine - theirs) / draws
        passed = sums.sum(axis=1) > 0
        if policy_of(rules).has_level:
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
PROMISING = 4
"""One group of items of the test split in so many is held out from the publish gate."""


class RunGate(NamedTuple):
    """A gate, and the items that it looks at."""

    knob: str
    """Path of the knob that chooses its policy."""
    split: Split
    rules: EvaluationGroup
    look: int = 1
    """Which look at these items it is; each has a level of its own."""

    @property
    def fewest(self) -> int:
        return policy_of(self.rules).fewest_items(self.rules)


class SmallestGain(Value):
    """The gain that a gate can be expected to find; see `smallest_gain`."""

    gate: str
    """Path of the knob that chooses its policy."""
    policy: str
    split: Split
    items: int
    groups: int | None
    """Groups that the items come from; None if they have none."""
    draws: int
    look: int = 1
    """That of the gate."""
    gain: float | None
    """Smallest gain of the mean that is found in four of five cases; None if there is none."""
    alike: float | None
    """The same if all draws of an item are alike, as at temperature 0."""

    def __str__(self) -> str:
        of = "" if self.groups is None else f" in {self.groups:,} groups"
        again = "" if self.look == 1 else f", look {self.look} at them"
        found = "no gain" if self.gain is None else f"a gain of {100 * self.gain:.1f} points"
        if self.alike is not None and self.alike != self.gain:
            found += f" ({100 * self.alike:.1f} if all draws of an item are alike)"
        return (
            f"{self.gate} = {self.policy}, {self.items:,} items of the {self.split} split{of}, "
            f"{self.draws} draw{'s' if self.draws > 1 else ''} of each{again}: {found}"
        )


def publish_split(splits: Collection[Split]) -> Split:
    """Return the split on which candidate and champion are compared: publish if the data has it, else test."""
    return Split.PUBLISH if Split.PUBLISH in splits else Split.TEST


def gates_of(config: TrainConfig, splits: Collection[Split], look: int = 1) -> list[RunGate]:
    """Return the gates of a training, without that of candidates where they are taken without one.

    Args:
        splits: those of the data.
        look: which look at its items the gate of publishing is.
    """
    gates = [
        RunGate("evaluation.gate_policy", Split.VAL, config.evaluation),
        RunGate(
            "publishing.gate_policy",
            publish_split(splits),
            publishing_rules(config.evaluation, config.publishing, look),
            look,
        ),
    ]
    return [gate for gate in gates if gate.rules.use_gate]


def publishing_rules(evaluation: EvaluationGroup, publishing: PublishingGroup, look: int = 1) -> EvaluationGroup:
    """Return a run's way to score, under the policy of publishing at the level of a look at the items."""
    level = level_of(look, publishing.gate_alpha)
    policy = {"use_gate": True, "gate_policy": publishing.gate_policy, "gate_alpha": level, "gate_protected_items": ()}
    return evaluation.model_copy(update=policy | {"draws": publishing.draws})


def decide_publication(
    candidate: Evaluation, rival: Evaluation, evaluation: EvaluationGroup, publishing: PublishingGroup, look: Look
) -> GateDecision:
    """Decide whether the candidate may become the champion; the reason names the look and its level."""
    decision = decide(candidate, rival, rival, publishing_rules(evaluation, publishing, look.number))
    level = level_at(look)
    seen = f"{decision.reason}; {look}{'' if level is None else f', level {level:.2g}'}"
    return decision.model_copy(update={"reason": seen})


def level_at(look: Look) -> float | None:
    """Return the level at which a look judges; None under a policy without one."""
    return look.level if POLICIES[look.question.policy].has_level else None


def deciding(split: Split, items: Sequence[T]) -> list[T]:
    """Return the items of a split by which the publish gate decides; the others say what the skill promises.

    A split publish decides as a whole, since the test split says the rest. Of a test split that decides, one group in
    PROMISING is held out: a score that decided is too high where the skill passed, by chance among other things.
    """
    return [item for item in items if split is Split.PUBLISH or not _held_out(item)]


def promising(items: Sequence[T]) -> list[T]:
    """Return the items of the test split that are held out from a publish gate which decides by that split."""
    return [item for item in items if _held_out(item)]


def _held_out(item: Item | ItemRef) -> bool:
    """Choose by a hash, so that it's always the same items, and all of a group."""
    return int(sha256(item.group or item.id)[:8], 16) % PROMISING == 0


def check_groups(config: TrainConfig, groups: Mapping[Split, Sequence[str]]) -> None:
    """Refuse a gate that no result could pass, because its items come from too few groups.

    An item without a group has an empty one.

    Raises:
        ConfigError: it names the gate, the groups that there are, and how many it needs.
    """
    for gate in gates_of(config, groups):
        if problem := hopeless(gate.rules, groups[gate.split]):
            raise ConfigError(
                f"{gate.knob} = {gate.rules.gate_policy} could accept nothing: the items of the {gate.split} split "
                f"{problem}; give it more data, or choose another policy"
            )


def hopeless(rules: EvaluationGroup, groups: Sequence[str]) -> str:
    """Return why a gate could accept nothing, whatever the scores on items of these groups; empty if it could."""
    sizes, policy = group_sizes(groups), policy_of(rules)
    fewest = policy.fewest_items(rules)
    if len(sizes) < fewest:
        return f"come from {len(sizes)} groups, and it needs at least {fewest}"
    if policy.has_level and not can_accept(rules, sizes):
        return f"come from {len(sizes)} groups, and not even all of them won would do, since one has {max(sizes)} items"
    return ""


def smallest_gains(
    config: TrainConfig, groups: Mapping[Split, Sequence[str]], look: int = 1
) -> tuple[SmallestGain, ...]:
    """Return what each gate can find; the groups are those of `check_groups`, the look that of `gates_of`."""
    return tuple(
        SmallestGain(
            look=gate.look,
            gate=gate.knob,
            policy=gate.rules.gate_policy,
            split=gate.split,
            items=len(groups[gate.split]),
            groups=count_groups(groups[gate.split]),
            draws=gate.rules.draws,
            gain=smallest_gain(gate.rules, group_sizes(groups[gate.split])),
            alike=smallest_gain(gate.rules, group_sizes(groups[gate.split]), alike=True),
        )
        for gate in gates_of(config, groups, look)
    )
