"""What a run will take, before its first call: model calls at most, tokens and price as a range."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from skillopt_airflow.core import schedule
from skillopt_airflow.core.budget import BATCH_SHARE, ModelPrice, Prices, Role
from skillopt_airflow.core.config import BudgetGroup, TrainConfig
from skillopt_airflow.core.gate_policies import policy_of
from skillopt_airflow.core.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.timeline import timeline
from skillopt_airflow.core.types import Split, Value
from skillopt_airflow.optimizer.minibatches import most_minibatches

CHARS_PER_TOKEN = 4
"""Of English text, roughly; other languages and code have fewer."""
ROLLOUT_TOKENS = 200
"""A likely answer of the target; at most it is model.max_tokens."""
OPTIMIZER_TOKENS = 700
"""A likely structured answer of the optimizer: a few edits with their reasons."""
OPTIMIZER_TOKENS_MOST = 4000
"""A long one, a model's reasoning included."""
INSTRUCTION_CHARS = 4000
"""Instructions and answer schema of an optimizer call."""
EDIT_CHARS = 250
"""One edit as the optimizer reads it, and what it adds to the skill."""
BATCHED = frozenset({"seed", "evaluate", "confirm", "final", "test"})
"""Stages that model.batch sends as jobs."""


class Tokens(Value):
    """Tokens that a model reads and writes."""

    prompt: int
    completion: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt + self.completion


class StageEstimate(Value):
    """One stage of the whole run; the target's stages are named as in the usage table."""

    stage: str
    role: Role
    calls: int
    """At most, if nothing is tried again."""
    likely: Tokens
    """With answers of a likely length, and the skill as long as at the start."""
    most: Tokens
    """With the longest answers, and a skill to which every step adds as many edits as it may."""


class Estimate(Value):
    """A run before its first call.

    Calls are upper bounds: rollouts that are stored already, candidates that equal their skill, early rejects and
    merges without need make them fewer. Calls that are tried or asked again come on top. The tokens rest on this
    module's constants.
    """

    stages: tuple[StageEstimate, ...]
    models: dict[Role, str]
    prices: dict[Role, ModelPrice | None]
    budget: BudgetGroup
    harness: HarnessName
    batch: bool
    """Whether evaluations go as jobs of the provider's batch API."""

    def calls(self, role: Role) -> int:
        """Calls of one role, at most."""
        return sum(stage.calls for stage in self.stages if stage.role == role)

    def tokens(self, case: Literal["likely", "most"]) -> int:
        """All tokens, of both roles."""
        return sum(_case(stage, case).total for stage in self.stages)

    def usd(self, case: Literal["likely", "most"]) -> float | None:
        """US dollars; None if a price is not known."""
        total = 0.0
        for stage in self.stages:
            price = self.prices.get(stage.role)
            if price is None:
                return None
            share = BATCH_SHARE if self.batch and stage.stage in BATCHED else 1.0
            total += share * price.usd(_case(stage, case).prompt, _case(stage, case).completion)
        return total

    def lines(self) -> list[str]:
        """For a log: a line a stage, the totals, the price, and each limit of the budget that may end the run."""
        return [
            "estimate for the whole run, at most, without calls that are tried again:",
            *(
                f"  {stage.stage} ({stage.role}): {stage.calls:,} calls, {_range(stage.likely.total, stage.most.total)}"
                for stage in self.stages
            ),
            f"  together: {self.calls('target'):,} target and {self.calls('optimizer'):,} optimizer calls, "
            f"{_range(self.tokens('likely'), self.tokens('most'))}",
            self._price_line(),
            *self._limit_lines(),
            *self._cli_lines(),
        ]

    def _price_line(self) -> str:
        likely, most = self.usd("likely"), self.usd("most")
        if likely is None or most is None:
            unknown = [model for role, model in self.models.items() if self.prices.get(role) is None]
            return f"  price: no price known for {' and '.join(unknown)}; set budget.prices"
        shown = ", ".join(
            f"{self.models[role]} at {price.input:g} and {price.output:g} a million tokens read and written "
            f"({price.source})"
            for role, price in self.prices.items()
            if price is not None
        )
        return f"  price: {likely:,.2f} to {most:,.2f} US dollars; {shown}"

    def _limit_lines(self) -> list[str]:
        reached = (
            ("max_calls", self.budget.max_calls, self.calls("target") + self.calls("optimizer")),
            ("max_tokens", self.budget.max_tokens, self.tokens("most")),
            ("max_usd", self.budget.max_usd, self.usd("most")),
        )
        return [
            f"  budget.{name} = {limit:,} may not be enough for the whole run; it would then stop after a step"
            for name, limit, most in reached
            if limit is not None and most is not None and most > limit
        ]

    def _cli_lines(self) -> list[str]:
        if not HARNESSES[self.harness].is_cli:
            return []
        return [f"  {self.harness} decides by itself how many calls an item takes; here an item counts as one"]


def estimate(
    config: TrainConfig,
    sizes: Mapping[Split, int],
    item_chars: float,
    skill_chars: int,
    steps_in_epoch: int,
    prices: Prices,
) -> Estimate:
    """Count the calls of every stage, and guess their tokens.

    Args:
        config: the resolved configuration; its limits of the selection and the test split are applied here.
        sizes: items of each split.
        item_chars: mean characters of a rollout's prompt without the skill.
        skill_chars: characters of the seed skill.
        steps_in_epoch: steps that an epoch of this training split takes.
        prices: of the configured models, as far as they are known.
    """
    counts = _Counts(config, sizes, steps_in_epoch)
    likely = _Lengths(config, steps_in_epoch, item_chars, skill_chars, ROLLOUT_TOKENS, OPTIMIZER_TOKENS)
    # Every step adds all that it may, so that over the run the mean has half of it.
    added = config.train.num_epochs * steps_in_epoch * config.optimizer.learning_rate * EDIT_CHARS // 2
    answer = max(ROLLOUT_TOKENS, config.model.max_tokens)
    most = _Lengths(config, steps_in_epoch, item_chars, skill_chars + added, answer, OPTIMIZER_TOKENS_MOST)
    roles: tuple[tuple[Role, Mapping[str, int]], ...] = (
        ("target", counts.of_target()),
        ("optimizer", counts.of_optimizer()),
    )
    return Estimate(
        stages=tuple(
            StageEstimate(
                stage=stage, role=role, calls=calls, likely=likely.tokens(stage, calls), most=most.tokens(stage, calls)
            )
            for role, stages in roles
            for stage, calls in stages.items()
            if calls
        ),
        models={"target": str(config.model.target), "optimizer": str(config.model.optimizer)},
        prices={"target": prices.get("target"), "optimizer": prices.get("optimizer")},
        budget=config.budget,
        harness=config.model.harness,
        batch=config.model.batch,
    )


def most_merges(patches: int, merge_batch_size: int, failure_only: bool) -> int:
    """Merge calls for so many patches, whichever way they split into failures and successes."""
    if failure_only:
        return _merges(patches, merge_batch_size)
    return max(
        _merges(failures, merge_batch_size) + _merges(patches - failures, merge_batch_size) + (0 < failures < patches)
        for failures in range(patches + 1)
    )


def _merges(parts: int, merge_batch_size: int) -> int:
    """Calls until one part is left; a part alone in its batch passes without one."""
    calls = 0
    while parts > 1:
        full, rest = divmod(parts, merge_batch_size)
        calls += full + (rest > 1)
        parts = full + (rest > 0)
    return calls


class _Counts:
    """Calls by stage, at most."""

    def __init__(self, config: TrainConfig, sizes: Mapping[Split, int], steps_in_epoch: int) -> None:
        self._config = config
        rules = config.evaluation
        self._train = sizes[Split.TRAIN]
        self._val = _limited(sizes[Split.VAL], rules.val_limit)
        self._test = _limited(sizes[Split.TEST], rules.test_limit) if rules.eval_test else 0
        self._moments = timeline(config, steps_in_epoch)
        kinds = Counter(moment.kind for moment in self._moments)
        self._slices = [
            [len(places) for places in schedule.slice_places(self._train, position, config.train)]
            for position in range(1, steps_in_epoch + 1)
        ]
        self._steps, self._meta_reflects = kinds["step"], kinds["meta_reflect"]
        self._comparisons = kinds["slow_update"]
        self._slow_updates = self._comparisons if config.optimizer.use_slow_update else 0

    def of_target(self) -> dict[str, int]:
        """Rollouts, of as many calls each as they may have turns, and follow-up questions."""
        config, rules = self._config, self._config.evaluation
        gated = self._steps + self._slow_updates + self._meta_reflects
        evaluation = self._val * rules.draws
        forced = not rules.use_gate or (self._slow_updates > 0 and not config.optimizer.slow_update_gate)
        turns = 1 if HARNESSES[config.model.harness].is_cli else config.model.max_turns
        follow_ups = self._over_all_steps(min(self._asked_about, sum(slices)) for slices in self._slices)
        rollouts = {
            "seed": evaluation,
            "rollout": self._over_all_steps(sum(slices) for slices in self._slices),
            "speculate": self._speculated() if config.train.speculative_rollout else 0,
            "evaluate": gated * evaluation,
            # The candidate and the current skill once more on every item on which they differ.
            "confirm": gated * 2 * self._val if rules.use_gate and policy_of(rules).needs_fresh_draws else 0,
            "longitudinal": self._comparisons * 2 * min(config.optimizer.slow_update_samples, self._train),
            # Only what was taken in any case can lack a score at the end.
            "final": evaluation if forced else 0,
            # The seed, the best and the last skill.
            "test": 3 * self._test * rules.draws,
            # The best skill and the present champion, on fresh draws.
            "publish": 2 * self._val * config.publishing.draws,
        }
        return {stage: turns * calls for stage, calls in rollouts.items()} | {"follow_up": follow_ups}

    def of_optimizer(self) -> dict[str, int]:
        """Questions by stage."""
        rules = self._config.optimizer
        minibatches = [self._minibatches(slices) for slices in self._slices]
        consolidates = rules.use_skill_aware_reflection and rules.skill_aware_consolidate_threshold > 0
        return {
            "deep_reflect": self._over_all_steps(min(self._asked_about, count) for count in minibatches),
            "reflect": self._over_all_steps(minibatches),
            "merge": self._over_all_steps(map(self._merges, minibatches)),
            "learning_rate": self._steps if rules.lr_control_mode == "autonomous" else 0,
            "rank": self._steps if self._ranks else 0,
            "rewrite": self._steps if rules.skill_update_mode == "rewrite_from_suggestions" else 0,
            "consolidate": self._steps if consolidates else 0,
            "slow_update": self._slow_updates,
            # From the second epoch on, and no longer after the last.
            "meta_skill": max(0, self._config.train.num_epochs - 2) if rules.use_meta_skill else 0,
            "meta_reflect": self._meta_reflects,
        }

    @property
    def _ranks(self) -> bool:
        """Of rewrites of the whole body one stays, also where edits have no limit."""
        rules = self._config.optimizer
        return rules.lr_control_mode != "none" or rules.skill_update_mode == "full_rewrite_minibatch"

    @property
    def _asked_about(self) -> int:
        gradient = self._config.gradient
        return gradient.deep_reflect_failures + gradient.deep_reflect_successes if gradient.use_deep_reflect else 0

    def _speculated(self) -> int:
        """Batches that follow on a step's evaluation at once, all of them in vain."""
        return sum(
            sum(self._slices[(following.step - 1) % len(self._slices)])
            for moment, following in pairwise(self._moments)
            if moment.kind == "step" and following.kind == "step"
        )

    def _over_all_steps(self, in_epoch: Iterable[int]) -> int:
        return self._config.train.num_epochs * sum(in_epoch)

    def _merges(self, patches: int) -> int:
        if self._config.optimizer.skill_update_mode == "full_rewrite_minibatch":
            return 0
        return most_merges(patches, self._config.gradient.merge_batch_size, self._config.gradient.failure_only)

    def _minibatches(self, slices: Sequence[int]) -> int:
        gradient = self._config.gradient
        if gradient.failure_only:
            return sum(math.ceil(size / gradient.minibatch_size) for size in slices)
        return sum(most_minibatches(size, gradient.minibatch_size, accumulation=1) for size in slices)


class _Lengths:
    """Tokens of a stage's calls under one assumption on the skill's length and the answers' (in tokens)."""

    def __init__(
        self,
        config: TrainConfig,
        steps_in_epoch: int,
        item_chars: float,
        skill_chars: int,
        target_tokens: int,
        optimizer_tokens: int,
    ) -> None:
        self._target_tokens, self._optimizer_tokens = target_tokens, optimizer_tokens
        self._rollout = item_chars + skill_chars
        self._base = INSTRUCTION_CHARS + skill_chars
        trajectory = item_chars + target_tokens * CHARS_PER_TOKEN
        gradient, rules = config.gradient, config.optimizer
        asked_about = (gradient.deep_reflect_failures + gradient.deep_reflect_successes) * trajectory
        edits = gradient.merge_batch_size * rules.learning_rate * EDIT_CHARS
        comparison = rules.slow_update_samples * trajectory
        rewrites = most_minibatches(config.train.batch_size, gradient.minibatch_size, config.train.accumulation)
        whole_bodies = rules.skill_update_mode == "full_rewrite_minibatch"
        self._shown: dict[str, float] = {
            "deep_reflect": asked_about,
            "reflect": gradient.minibatch_size * trajectory,
            "merge": edits,
            "learning_rate": edits,
            "rank": rewrites * skill_chars if whole_bodies else edits,
            "rewrite": rules.learning_rate * EDIT_CHARS,
            "consolidate": rules.skill_aware_consolidate_threshold * EDIT_CHARS,
            "slow_update": comparison,
            "meta_skill": comparison,
            "meta_reflect": steps_in_epoch * rules.learning_rate * EDIT_CHARS,
        }

    def tokens(self, stage: str, calls: int) -> Tokens:
        """Of all calls of a stage."""
        of_optimizer = stage in self._shown
        chars = self._base + self._shown[stage] if of_optimizer else self._rollout
        answer = self._optimizer_tokens if of_optimizer else self._target_tokens
        return Tokens(prompt=round(calls * chars / CHARS_PER_TOKEN), completion=calls * answer)


def _case(stage: StageEstimate, case: Literal["likely", "most"]) -> Tokens:
    return stage.likely if case == "likely" else stage.most


def _limited(size: int, limit: int | None) -> int:
    return size if limit is None else min(size, limit)


def _range(likely: int, most: int) -> str:
    return f"{_short(likely)} to {_short(most)} tokens"


def _short(tokens: int) -> str:
    """Two digits at least; more would promise too much."""
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e6 else f"{math.ceil(tokens / 1e3)} k"
