"""The cost of a run's model calls, and its budget."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from pydantic import Field

from skillopt_airflow.core.config.resource_groups import BudgetGroup, ModelGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import ModelCall, Value
from skillopt_airflow.core.wire_formats.wire_format import Tokens

Role = Literal["target", "optimizer", "judge"]
MODEL_ROLES: Sequence[Role] = ("target", "optimizer", "judge")
MEASURING_ROLES: Sequence[Role] = ("target", "judge")
"""The roles in a run that only measures skills."""

MILLION = 1_000_000
BATCH_SHARE = 0.5
"""Price of a token in a batch job as a share of its usual price, for all models of OpenAI and Anthropic."""


class ModelPrice(Value):
    """A model's price in US dollars per million tokens, and its source."""

    input: float = Field(ge=0.0)
    output: float = Field(ge=0.0)
    source: str
    """The table and its date, or the configuration's key."""
    context: int | None = None
    """Tokens of the model's context window; None if unknown."""

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.input + completion_tokens * self.output) / MILLION


Prices = Mapping[Role, ModelPrice | None]
"""Prices by role, since calls have the provider's name of the model. None or a missing entry is an unknown price."""


class Spending(Value):
    """Amounts that were spent: model calls, tokens read and written, and US dollars (None if a price is unknown)."""

    calls: int = Field(default=0, ge=0)
    """Requests; retries don't count, since only answers cost money."""
    tokens: int = Field(default=0, ge=0)
    usd: float | None = Field(default=0.0, ge=0.0)

    def times(self, count: int) -> "Spending":
        usd = None if self.usd is None else count * self.usd
        return Spending(calls=count * self.calls, tokens=count * self.tokens, usd=usd)

    def plus(self, *others: "Spending") -> "Spending":
        every = (self, *others)
        return Spending(
            calls=sum(one.calls for one in every),
            tokens=sum(one.tokens for one in every),
            usd=total_usd(one.usd for one in every),
        )


class RemainingLimits(NamedTuple):
    """Remaining amounts; None means no limit. Calls in flight can push tokens and dollars below zero."""

    calls: int | None
    tokens: int | None
    usd: float | None

    @property
    def used_up(self) -> str:
        """The knob of a limit that is used up; empty if there is none."""
        amounts = (("max_calls", self.calls), ("max_tokens", self.tokens), ("max_usd", self.usd))
        return next((f"budget.{name}" for name, amount in amounts if amount is not None and amount <= 0), "")

    def minus(self, spent: Spending) -> "RemainingLimits":
        """Return the amounts after spending; no dollars are left if a price is unknown."""
        left = self.plus(RemainingLimits(spent.calls, spent.tokens, spent.usd), times=-1)
        return left if self.usd is None or spent.usd is not None else left._replace(usd=0.0)

    def plus(self, other: "RemainingLimits", times: int = 1) -> "RemainingLimits":
        """Return the amounts plus `times` those of another part of the same budget."""
        return RemainingLimits(
            calls=None if self.calls is None or other.calls is None else self.calls + times * other.calls,
            tokens=None if self.tokens is None or other.tokens is None else self.tokens + times * other.tokens,
            usd=None if self.usd is None or other.usd is None else self.usd + times * other.usd,
        )

    def over(self, parts: int) -> "RemainingLimits":
        """Return one of `parts` equal parts, with at least one call if any are left."""
        return RemainingLimits(
            calls=None if self.calls is None else min(self.calls, max(1, self.calls // parts)),
            tokens=None if self.tokens is None else self.tokens // parts,
            usd=None if self.usd is None else self.usd / parts,
        )


def remaining_limits(budget: BudgetGroup, *spent: Spending) -> RemainingLimits:
    return RemainingLimits(budget.max_calls, budget.max_tokens, budget.max_usd).minus(Spending().plus(*spent))


def task_limits(
    budget: BudgetGroup, part: Fraction, *, others: Spending, beside: Spending, own: Spending
) -> RemainingLimits:
    """Return the amounts that a task may still spend.

    A task gets its part of the budget that was left before its stage, minus its own spending. It never gets more than
    is left now. The parts of a stage's tasks add up to at most 1. The amounts that other stages (`others`), other tasks
    of the stage (`beside`) and earlier attempts (in `own`) have spent include reservations.
    """
    before, now = remaining_limits(budget, others), remaining_limits(budget, others, beside)
    whole = [
        None if was is None or left is None else min(max(1, math.floor(was * part)), left)
        for was, left in ((before.calls, now.calls), (before.tokens, now.tokens))
    ]
    usd = None if before.usd is None or now.usd is None else min(before.usd * float(part), now.usd)
    return RemainingLimits(whole[0], whole[1], usd).minus(own)


class StageCost(Value):
    """The cost of one role's calls for one stage."""

    stage: str
    role: Role
    calls: int
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """Sum over all calls, including concurrent ones."""
    usd: float | None
    """US dollars; None if the price is unknown."""


def total_spending(calls: Iterable[ModelCall], prices: Prices) -> Spending:
    costs = by_stage(calls, prices)
    amounts = ((cost.calls, cost.prompt_tokens + cost.completion_tokens, cost.usd) for cost in costs)
    return Spending().plus(*(Spending(calls=count, tokens=tokens, usd=usd) for count, tokens, usd in amounts))


def by_stage(calls: Iterable[ModelCall], prices: Prices) -> tuple[StageCost, ...]:
    """Return the cost of each stage, ordered by the stages' start; the order of the calls doesn't matter."""
    groups: dict[tuple[str, Role], _Tally] = {}
    for call in calls:
        groups.setdefault((call.stage, call.role), _Tally()).add(call)
    began = sorted(groups.items(), key=lambda group: (group[1].started, group[0]))
    return tuple(tally.cost(stage, role, prices.get(role)) for (stage, role), tally in began)


def total_usd(costs: Iterable[float | None]) -> float | None:
    """Return the sum; None if any cost is unknown."""
    every = list(costs)
    known = [usd for usd in every if usd is not None]
    return sum(known) if len(known) == len(every) else None


def stop_reason(total: Spending, steps: Sequence[Spending], budget: BudgetGroup) -> str:
    """Return the reason to stop, or an empty string.

    A run stops if a limit is used up, or if a step at the maximum cost of `steps` would exceed it. With budget.max_usd,
    it also stops if a price is unknown.
    """
    prices = [step.usd for step in steps]
    dearest = None if None in prices else max(filter(None, prices), default=0.0)
    if budget.max_usd is not None and (total.usd is None or dearest is None):
        return f"budget.max_usd = {budget.max_usd:g}: the cost of the run is unknown. Set budget.prices"
    limits: Sequence[tuple[str, str, float | None, float | None, float | None]] = (
        ("max_calls", ",d", budget.max_calls, total.calls, max((step.calls for step in steps), default=0)),
        ("max_tokens", ",d", budget.max_tokens, total.tokens, max((step.tokens for step in steps), default=0)),
        ("max_usd", ",.4f", budget.max_usd, total.usd, dearest),
    )
    for name, style, limit, used, more in limits:
        if limit is None or used is None or more is None:
            continue
        if used >= limit or used + more > limit:
            shown = f"{limit:,d}" if isinstance(limit, int) else f"{limit:g}"
            return f"budget.{name} = {shown}: {used:{style}} are spent, and a step needs up to {more:{style}} more"
    return ""


def exceeded_limits(budget: BudgetGroup, calls: int, tokens: int, usd: float | None) -> Iterator[str]:
    """Yield each limit that a run may exceed; an unknown price exceeds none."""
    for name, limit, needed in (
        ("max_calls", budget.max_calls, calls),
        ("max_tokens", budget.max_tokens, tokens),
        ("max_usd", budget.max_usd, usd),
    ):
        if limit is not None and needed is not None and needed > limit:
            yield f"budget.{name} = {limit:,}"


def model_names(model: ModelGroup) -> dict[Role, str | None]:
    return {"target": model.target, "optimizer": model.optimizer, "judge": model.judge}


def missing_price(prices: Prices, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
    """Return the reason why budget.max_usd can't be enforced, an unknown price, or an empty string."""
    limit, names = config.budget.max_usd, model_names(config.model)
    unknown = [(role, names[role]) for role in asked if names[role] is not None and prices.get(role) is None]
    if limit is None or not unknown:
        return ""
    named = " and ".join(f"the {role} {name}" for role, name in unknown)
    return (
        f"budget.max_usd = {limit:g}: no price is known for {named}. Set budget.prices, such as "
        f'{{"{unknown[0][1]}": {{"input": 1.25, "output": 10}}}} in US dollars per million tokens, or limit '
        "budget.max_tokens instead"
    )


@dataclass
class _Tally:
    """A running total of one role's calls for one stage."""

    started: float = math.inf
    calls: int = 0
    attempts: int = 0
    usual: Tokens = field(default_factory=Tokens)
    batched: Tokens = field(default_factory=Tokens)
    seconds: list[float] = field(default_factory=list)

    def add(self, call: ModelCall) -> None:
        self.started = min(self.started, call.started)
        self.calls += 1
        self.attempts += call.attempts
        if call.batch:
            self.batched += Tokens(call.prompt_tokens, call.completion_tokens)
        else:
            self.usual += Tokens(call.prompt_tokens, call.completion_tokens)
        self.seconds.append(call.seconds)

    def cost(self, stage: str, role: Role, price: ModelPrice | None) -> StageCost:
        usual, batched, tokens, usd = self.usual, self.batched, self.usual + self.batched, None
        if price is not None:
            usd = price.usd(usual.prompt, usual.completion)
            usd += BATCH_SHARE * price.usd(batched.prompt, batched.completion)
        return StageCost(
            stage=stage,
            role=role,
            calls=self.calls,
            attempts=self.attempts,
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            # fsum: a plain sum depends on the order.
            seconds=math.fsum(self.seconds),
            usd=usd,
        )
