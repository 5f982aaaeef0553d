"""The estimate of a run's calls, tokens and price before its first call, as a range."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.run_gates import publish_split
from skillopt_airflow.core.run.budget import BATCH_SHARE, Prices, Role, exceeded_limits, model_names, total_usd
from skillopt_airflow.core.run.timeline import timeline
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.pictures import sizes as picture_sizes
from skillopt_airflow.core.values.skill import CHARS_PER_TOKEN
from skillopt_airflow.core.values.text import MAX_TOLD_CHARS
from skillopt_airflow.core.values.types import Item, Split
from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.optimizer.sections import prompt_room
from skillopt_airflow.tasks.protocols import Benchmark

SAMPLED_ITEMS = 100
"""Sample size for the mean prompt of a split."""
ROLLOUT_TOKENS = 200
"""A likely answer of the target; the maximum is model.max_tokens."""
FEEDBACK_CHARS = 1000
"""A likely tool result or feedback; the maximum is MAX_TOLD_CHARS."""
CONTEXT_CHARS = 800_000
"""A conversation that fills most models' context."""
OPTIMIZER_FACTOR = 2
"""Optimizer calls per reflection: the reflection, and at most one more for merging, selection and the epoch's end."""
OPTIMIZER_TOKENS = 700
"""A likely answer of the optimizer: a few edits with reasons."""
MAX_OPTIMIZER_TOKENS = 4000
"""A long answer of the optimizer, with reasoning."""
INSTRUCTION_CHARS = 4000
"""Instructions and answer schema of an optimizer call."""
JUDGE_CHARS = 2500
"""Instructions and answer schema of a judge's call."""
JUDGE_TOKENS = 100
"""A grade with its quote and reason."""
EDIT_CHARS = 250
"""One edit and its growth of the skill."""
BATCHED = frozenset({"seed", "evaluate", "final", "test"})
"""Stages that model.batch sends as jobs."""

Case = Literal["likely", "most"]


class Tokens(NamedTuple):
    """Tokens that a model reads and writes."""

    prompt: int
    completion: int


class EstimateTotals(Document):
    """The totals of an estimate, stored as estimate.json."""

    calls: dict[Role, int]
    """Calls per role without retries: maximum of target and judge, approximate of the optimizer."""
    tokens_likely: int
    tokens_most: int
    usd_likely: float | None
    """US dollars; None if a price is unknown."""
    usd_most: float | None


class RoleEstimate(NamedTuple):
    """All calls of one role."""

    role: Role
    calls: int
    likely: Tokens
    """With likely answers and the initial skill's length."""
    most: Tokens
    """With the longest answers, and a skill that grows by the maximum edits per step."""
    share: float = 1.0
    """Share of the usual price; lower with batch jobs."""


@dataclass(frozen=True)
class Estimate:
    """An estimate without retries, based on this module's constants."""

    config: TrainConfig
    prices: Prices
    rollouts: Mapping[str, int]
    """Maximum by stage; stored rollouts and early rejections reduce them."""
    roles: Sequence[RoleEstimate]

    def tokens(self, case: Case) -> int:
        return sum(sum(getattr(one, case)) for one in self.roles)

    def usd(self, case: Case) -> float | None:
        """Return US dollars; None if a price is unknown."""
        priced = [(one, self.prices.get(one.role)) for one in self.roles]
        return total_usd(None if price is None else one.share * price.usd(*getattr(one, case)) for one, price in priced)

    @property
    def totals(self) -> EstimateTotals:
        return EstimateTotals(
            calls={one.role: one.calls for one in self.roles},
            tokens_likely=self.tokens("likely"),
            tokens_most=self.tokens("most"),
            usd_likely=self.usd("likely"),
            usd_most=self.usd("most"),
        )

    def lines(self) -> list[str]:
        """Return log lines: rollouts, calls, tokens, price, and limits that may end the run early."""
        by_stage = ", ".join(f"{stage} {count:,}" for stage, count in self.rollouts.items() if count)
        lines = [
            "estimate for the whole run, without retries; tokens from likely answers to the longest:",
            f"  rollouts, at most: {sum(self.rollouts.values()):,} ({by_stage})",
            *(
                f"  {role}: {calls:,} calls, {short(sum(likely))} to {short(sum(most))} tokens"
                for role, calls, likely, most, _ in self.roles
            ),
            self._price_line(),
        ]
        calls, tokens = sum(one.calls for one in self.roles), self.tokens("most")
        lines += [
            f"  {limit} may be too low for the whole run. The run would stop early"
            for limit in exceeded_limits(self.config.budget, calls, tokens, self.usd("most"))
        ]
        if HARNESSES[self.config.model.harness].is_cli:
            lines.append(
                f"  {self.config.model.harness} chooses its number of calls. Each rollout counts as one call here"
            )
        return lines

    def _price_line(self) -> str:
        names, asked = model_names(self.config.model), [one.role for one in self.roles]
        likely, most = self.usd("likely"), self.usd("most")
        if likely is None or most is None:
            unknown = [str(names[role]) for role in asked if self.prices.get(role) is None]
            return f"  price: no price known for {' and '.join(unknown)}; set budget.prices"
        shown = ", ".join(
            f"{names[role]} at {price.input:g} and {price.output:g} per million tokens read and written "
            f"({price.source})"
            for role in asked
            if (price := self.prices.get(role)) is not None
        )
        return f"  price: {likely:,.2f} to {most:,.2f} US dollars; {shown}"


class Prompt(NamedTuple):
    """The mean prompt of a rollout, without the skill."""

    chars: float
    picture_tokens: float = 0.0

    @classmethod
    def of(cls, benchmark: Benchmark, target: str, items: Sequence[Item]) -> "Prompt":
        """Measure the prompts of items; pictures in an unknown wire format count like OpenAI's."""
        prompts = [benchmark.messages(item.public, "") for item in items if not item.unusable]
        chars = sum(len(message.content) for prompt in prompts for message in prompt)
        wire_format = WIRE_FORMATS.get(target.partition(":")[0], WIRE_FORMATS["openai"])
        seen = [size for item in items for size in picture_sizes(item)]
        pictures = sum(wire_format.picture_tokens(size.width, size.height) for size in seen)
        return cls(chars / max(1, len(prompts)), pictures / max(1, len(items)))


def estimate_training(
    config: TrainConfig,
    sizes: Mapping[Split, int],
    prompt: Prompt,
    skill_chars: int,
    steps_in_epoch: int,
    prices: Prices,
) -> Estimate:
    """Estimate a training; val_limit and test_limit are applied to the sizes here."""
    rollouts = _rollouts(config, sizes, steps_in_epoch)
    steps = config.train.num_epochs * steps_in_epoch
    # If every step adds its maximum, the run's mean is half of the total.
    longest = skill_chars + steps * config.optimizer.learning_rate * EDIT_CHARS // 2
    measured = estimate_rollouts(config, rollouts, prompt, (skill_chars, longest), prices)
    gradient, batch = config.gradient, min(config.train.batch_size, sizes[Split.TRAIN])
    minibatches = min(batch, math.ceil(batch / gradient.minibatch_size) + (not gradient.failure_only))
    reflections = steps * config.train.accumulation * minibatches * gradient.analyst_rounds + rollouts["follow_up"]
    # Also one selection per merged patch, and the calls at the epochs' ends.
    calls = OPTIMIZER_FACTOR * (reflections + steps + config.train.num_epochs)
    shown = gradient.minibatch_size * config.train.samples
    pictures = min(gradient.show_pictures, gradient.minibatch_size) * prompt.picture_tokens * CHARS_PER_TOKEN

    def reflecting(skill: int, answer: int, told: int) -> float:
        trajectory = prompt.chars + 2 * earlier_chars(turns(config), answer, told) + answer * CHARS_PER_TOKEN
        room = prompt_room(gradient, prices)
        return (min(room, INSTRUCTION_CHARS + skill + shown * trajectory) + pictures) / CHARS_PER_TOKEN

    likely = round(reflections * reflecting(skill_chars, ROLLOUT_TOKENS, FEEDBACK_CHARS))
    most = round(calls * reflecting(longest, _longest_answer(config), MAX_TOLD_CHARS))
    optimizer = RoleEstimate(
        "optimizer", calls, Tokens(likely, calls * OPTIMIZER_TOKENS), Tokens(most, calls * MAX_OPTIMIZER_TOKENS)
    )
    return Estimate(config, prices, rollouts, (*measured.roles, optimizer))


def estimate_rollouts(
    config: TrainConfig, rollouts: Mapping[str, int], prompt: Prompt, skill_chars: tuple[int, int], prices: Prices
) -> Estimate:
    """Estimate target and judge calls by stage; `skill_chars` is the likely and the maximum length of the skill."""
    count, each = sum(rollouts.values()), turns(config)

    def read(skill: int, answer: int, told: int) -> int:
        chars = prompt.chars + skill + earlier_chars(each, answer, told)
        return round(each * count * (chars / CHARS_PER_TOKEN + prompt.picture_tokens))

    longest = _longest_answer(config)
    likely = Tokens(read(skill_chars[0], ROLLOUT_TOKENS, FEEDBACK_CHARS), each * count * ROLLOUT_TOKENS)
    most = Tokens(read(skill_chars[1], longest, MAX_TOLD_CHARS), each * count * longest)
    in_jobs = sum(rollouts.get(stage, 0) for stage in BATCHED) if config.model.batch else 0
    share = 1.0 - (1.0 - BATCH_SHARE) * in_jobs / max(1, count)
    roles = [RoleEstimate("target", each * count, likely, most, share)]
    if config.model.judge is not None:
        short_answer, long_answer = (
            Tokens(round(count * ((JUDGE_CHARS + prompt.chars) / CHARS_PER_TOKEN + answer)), count * JUDGE_TOKENS)
            for answer in (ROLLOUT_TOKENS, longest)
        )
        roles.append(RoleEstimate("judge", count, short_answer, long_answer))
    return Estimate(config, prices, rollouts, roles)


def _rollouts(config: TrainConfig, sizes: Mapping[Split, int], steps_in_epoch: int) -> dict[str, int]:
    train, rules, optimizer = config.train, config.evaluation, config.optimizer
    limited = {split: len(range(size)[: rules.limit(split)]) for split, size in sizes.items()}
    moments = timeline(config, steps_in_epoch)
    steps, compared = train.num_epochs * steps_in_epoch, sum(moment.compares for moment in moments)
    guidance = compared if optimizer.use_slow_update else 0
    candidates = steps + guidance + sum(moment.kind == "meta_reflect" for moment in moments)
    in_epoch = min(sizes[Split.TRAIN], steps_in_epoch * train.batch_size * train.accumulation)
    batches, val = train.num_epochs * in_epoch, limited[Split.VAL] * rules.samples
    probes = config.gradient.deep_reflect_failures + config.gradient.deep_reflect_successes
    return {
        "seed": val,
        "rollout": batches * train.samples,
        "speculate": batches * train.samples if train.speculative_rollout else 0,
        "follow_up": steps * probes if config.gradient.use_deep_reflect else 0,
        "evaluate": candidates * val,
        "compare_epochs": compared * 2 * min(optimizer.slow_update_samples, sizes[Split.TRAIN]),
        "final": val,
        "test": rules.most_tested(train.num_epochs) * limited[Split.TEST] * rules.samples,
        "publish": 2 * limited[publish_split(limited)] * config.publishing.samples,
    }


def turns(config: TrainConfig) -> int:
    """Return the known maximum of calls per rollout."""
    return 1 if HARNESSES[config.model.harness].is_cli else config.model.max_turns


def earlier_chars(turns: int, answer: int, told: int) -> float:
    """Return the mean characters of earlier turns per call: half of the conversation.

    After each call with an answer (in tokens), the model is told a tool result or feedback (in characters).
    """
    return min((turns - 1) / 2 * (answer * CHARS_PER_TOKEN + told), CONTEXT_CHARS)


def short(tokens: int) -> str:
    """Format tokens with at least two digits, without false precision."""
    return f"{tokens / 1e6:,.1f} M" if tokens >= 1e6 else f"{math.ceil(tokens / 1e3)} k"


def _longest_answer(config: TrainConfig) -> int:
    return max(ROLLOUT_TOKENS, config.model.max_tokens)
