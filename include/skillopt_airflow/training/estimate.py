"""An estimate of a run before its first call: model calls at most, tokens and price as a range."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from skillopt_airflow.core import schedule
from skillopt_airflow.core.budget import BATCH_SHARE, Prices, Role, model_names, passed_limits, total_usd
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.density import CHARS_PER_TOKEN
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.shortening import MOST_TOLD_CHARS
from skillopt_airflow.core.types import Split
from skillopt_airflow.optimizer.minibatches import most_minibatches
from skillopt_airflow.optimizer.prompt_room import prompt_room
from skillopt_airflow.training.call_counts import judge_calls, optimizer_calls, probes, target_calls, turns

ROLLOUT_TOKENS = 200
"""A likely answer of the target; at most it is model.max_tokens."""
TOLD_CHARS = 1000
"""A likely tool's result or feedback; at most it is MOST_TOLD_CHARS."""
CONTEXT_CHARS = 800_000
"""A conversation that fills the context of most models."""
OPTIMIZER_TOKENS = 700
"""A likely structured answer of the optimizer: a few edits with their reasons."""
OPTIMIZER_TOKENS_MOST = 4000
"""A long answer of the optimizer, with a model's reasoning."""
INSTRUCTION_CHARS = 4000
"""Instructions and answer schema of an optimizer call."""
JUDGE_CHARS = 2500
"""Instructions and answer schema of a judge's call."""
JUDGE_TOKENS = 100
"""A grade with its quote and reason."""
EDIT_CHARS = 250
"""One edit as the optimizer reads it, and what it adds to the skill."""
BATCHED = frozenset({"seed", "evaluate", "final", "test"})
"""Stages that model.batch sends as jobs."""

Case = Literal["likely", "most"]


class Tokens(NamedTuple):
    """Tokens that a model reads and writes."""

    prompt: int
    completion: int


class EstimateTotals(Document):
    """A run before its first call, as estimate.json."""

    calls: dict[Role, int]
    """At most, without retries, of each role that is asked."""
    tokens_likely: int
    tokens_most: int
    usd_likely: float | None
    """US dollars; None if a price is not known."""
    usd_most: float | None


class StageEstimate(NamedTuple):
    """One stage of the whole run; the target's stages are named as in the usage table."""

    stage: str
    role: Role
    calls: int
    """At most, without retries."""
    likely: Tokens
    """With answers of a likely length, and the skill as long as at the start."""
    most: Tokens
    """With the longest answers, and a skill to which every step adds as many edits as it may."""


@dataclass(frozen=True)
class Estimate:
    """A run before its first call.

    Calls are upper bounds: rollouts that are stored already, candidates that equal their skill, early rejects and
    merges without need make them fewer. Calls that are tried or asked again come on top. The tokens
    rest on this module's constants.
    """

    config: TrainConfig
    prices: Prices
    stages: tuple[StageEstimate, ...]

    def calls(self, role: Role) -> int:
        """Return the most calls of one role."""
        return sum(stage.calls for stage in self.stages if stage.role == role)

    def tokens(self, case: Case) -> int:
        """Return all tokens, of all roles."""
        return sum(sum(getattr(stage, case)) for stage in self.stages)

    def usd(self, case: Case) -> float | None:
        """Return US dollars; None if a price is not known."""

        def usd(stage: StageEstimate) -> float | None:
            price = self.prices.get(stage.role)
            share = BATCH_SHARE if self.config.model.batch and stage.stage in BATCHED else 1.0
            return None if price is None else share * price.usd(*getattr(stage, case))

        return total_usd(map(usd, self.stages))

    @property
    def totals(self) -> EstimateTotals:
        """Return all stages together."""
        return EstimateTotals(
            calls={role: self.calls(role) for role in dict.fromkeys(stage.role for stage in self.stages)},
            tokens_likely=self.tokens("likely"),
            tokens_most=self.tokens("most"),
            usd_likely=self.usd("likely"),
            usd_most=self.usd("most"),
        )

    def lines(self) -> list[str]:
        """Return lines for a log: each stage, the totals, the price, and the budget's limits that may end the run."""
        target, optimizer, judge = self.calls("target"), self.calls("optimizer"), self.calls("judge")
        tokens, harness = self.tokens("most"), self.config.model.harness
        lines = ["estimate for the whole run, at most, without calls that are tried again:"]
        for stage, role, calls, likely, most in self.stages:
            lines.append(f"  {stage} ({role}): {calls:,} calls, {short(sum(likely))} to {short(sum(most))} tokens")
        lines += [
            f"  together: {target:,} target and {optimizer:,} optimizer calls, "
            f"{f'{judge:,} of the judge, ' if judge else ''}{short(self.tokens('likely'))} to "
            f"{short(tokens)} tokens",
            self._price_line(),
        ]
        for limit in passed_limits(self.config.budget, target + optimizer + judge, tokens, self.usd("most")):
            lines.append(f"  {limit} may not be enough for the whole run; it would then stop after a step")
        if HARNESSES[harness].is_cli:
            lines.append(f"  {harness} decides by itself how many calls an item takes; here an item counts as one")
        return lines

    def _price_line(self) -> str:
        models = {role: name for role, name in model_names(self.config.model).items() if name is not None}
        likely, most = self.usd("likely"), self.usd("most")
        if likely is None or most is None:
            unknown = [str(model) for role, model in models.items() if self.prices.get(role) is None]
            return f"  price: no price known for {' and '.join(unknown)}; set budget.prices"
        shown = ", ".join(
            f"{model} at {price.input:g} and {price.output:g} a million tokens read and written ({price.source})"
            for role, model in models.items()
            if (price := self.prices.get(role)) is not None
        )
        return f"  price: {likely:,.2f} to {most:,.2f} US dollars; {shown}"


def estimate(
    config: TrainConfig,
    sizes: Mapping[Split, int],
    item_chars: float,
    skill_chars: int,
    steps_in_epoch: int,
    prices: Prices,
    picture_tokens: float = 0.0,
) -> Estimate:
    """Count the calls of every stage, and guess their tokens.

    Args:
        config: the resolved configuration; its limits of the selection and the test split are applied here.
        sizes: items of each split.
        item_chars: mean characters of a rollout's prompt without the skill.
        skill_chars: characters of the seed skill.
        steps_in_epoch: steps that an epoch of this training split takes.
        prices: of the configured models, as far as they are known.
        picture_tokens: mean tokens of the pictures in a rollout's prompt.
    """
    positions = range(1, steps_in_epoch + 1)
    slices = [[len(part) for part in schedule.slice_places(sizes[Split.TRAIN], at, config.train)] for at in positions]
    # Every step adds all that it may, so that over the run the mean has half of it.
    added = config.train.num_epochs * steps_in_epoch * config.optimizer.learning_rate * EDIT_CHARS // 2
    each = turns(config)
    room = prompt_room(config.gradient, prices)

    def tokens(stage: str, role: Role, calls: int, skill: int, of_target: int, of_optimizer: int, told: int) -> Tokens:
        before = 0 if stage == "follow_up" else earlier_chars(each, of_target, told)
        chars, answer = item_chars + skill + picture_tokens * CHARS_PER_TOKEN + before, of_target
        if role == "judge":
            chars, answer = JUDGE_CHARS + item_chars + of_target * CHARS_PER_TOKEN, JUDGE_TOKENS
        if role == "optimizer":
            whole = 2 * earlier_chars(each, of_target, told)
            trajectory = item_chars + whole + of_target * CHARS_PER_TOKEN
            shown = _shown_chars(config, steps_in_epoch, trajectory, skill)
            chars, answer = min(room, INSTRUCTION_CHARS + skill + shown[stage]), of_optimizer
            if stage == "reflect":
                items = min(config.gradient.show_pictures, config.gradient.minibatch_size)
                chars += items * picture_tokens * CHARS_PER_TOKEN
        return Tokens(round(calls * chars / CHARS_PER_TOKEN), calls * answer)

    likely = (skill_chars, ROLLOUT_TOKENS, OPTIMIZER_TOKENS, TOLD_CHARS)
    longest = max(ROLLOUT_TOKENS, config.model.max_tokens)
    most = (skill_chars + added, longest, OPTIMIZER_TOKENS_MOST, MOST_TOLD_CHARS)
    target = target_calls(config, sizes, slices)
    counted: dict[Role, dict[str, int]] = {
        "target": target,
        "optimizer": optimizer_calls(config, slices),
        "judge": judge_calls(config, target),
    }
    stages = tuple(
        StageEstimate(stage, role, calls, tokens(stage, role, calls, *likely), tokens(stage, role, calls, *most))
        for role, by_stage in counted.items()
        for stage, calls in by_stage.items()
        if calls
    )
    return Estimate(config, prices, stages)


def earlier_chars(turns: int, answer: int, told: int) -> float:
    """Return the mean characters that a call reads of the turns before it, which is half of the conversation.

    Args:
        turns: calls of a rollout.
        answer: tokens of one.
        told: characters that the target is told behind each.
    """
    return min((turns - 1) / 2 * (answer * CHARS_PER_TOKEN + told), CONTEXT_CHARS)


def _shown_chars(config: TrainConfig, steps_in_epoch: int, trajectory: float, skill_chars: int) -> dict[str, float]:
    """Return by stage the characters that a call of the optimizer sees besides its instructions and the skill."""
    gradient, rules = config.gradient, config.optimizer
    edits = gradient.merge_batch_size * rules.learning_rate * EDIT_CHARS
    bodies = most_minibatches(config.train.batch_size, gradient.minibatch_size, config.train.accumulation) * skill_chars
    # Both trajectories of an item; and the previous skill, which a call sees besides the present one.
    comparison = 2 * rules.slow_update_samples * trajectory + skill_chars
    return {
        "preflight": 0,
        "deep_reflect": probes(config) * trajectory,
        "reflect": gradient.minibatch_size * config.train.rollouts_per_item * trajectory,
        "merge": edits,
        "merge_rewrites": gradient.merge_batch_size * skill_chars,
        "learning_rate": edits,
        "rank": bodies if rules.skill_update_mode == "full_rewrite_minibatch" else edits,
        "rewrite": rules.learning_rate * EDIT_CHARS,
        "consolidate": rules.skill_aware_consolidate_threshold * EDIT_CHARS,
        "slow_update": comparison,
        "meta_skill": comparison,
        "meta_reflect": steps_in_epoch * rules.learning_rate * EDIT_CHARS,
    }


def short(tokens: int) -> str:
    """Show two digits at least; more would promise too much."""
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e6 else f"{math.ceil(tokens / 1e3)} k"
