"""The cost of a run's model calls, and the budget that ends it."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from pydantic import Field

from skillopt_airflow.core.config.resource_groups import BudgetGroup, ModelGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import ModelCall, Value

Role = Literal["target", "optimizer", "judge"]
ROLES: Sequence[Role] = ("target", "optimizer", "judge")
MEASURING: Sequence[Role] = ("target", "judge")
"""Those whose models a run asks that only measures skills."""

MILLION = 1_000_000
BATCH_SHARE = 0.5
"""Price of a token in a batch job, as a share of its usual price: OpenAI and Anthropic alike, all models."""


class ModelPrice(Value):
    """A model's price in US dollars for a million tokens, and who says so."""

    input: float = Field(ge=0.0)
    """Tokens that the model reads."""
    output: float = Field(ge=0.0)
    """Tokens that the model writes."""
    source: str
    """The table and its date, or the configuration's key."""
    context: int | None = None
    """Tokens of the model's context window; None if unknown."""

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.input + completion_tokens * self.output) / MILLION


Prices = Mapping[Role, ModelPrice | None]
"""Prices by role, because a call names its model as the provider does; None, or no entry, is an unknown price."""


class Spent(Value):
    """Model calls, the tokens that they read and wrote, and US dollars; None if a price is not known."""

    calls: int = Field(default=0, ge=0)
    """Requests; the tries of one request count once, as only an answer is paid."""
    tokens: int = Field(default=0, ge=0)
    usd: float | None = Field(default=0.0, ge=0.0)

    def times(self, count: int) -> "Spent":
        usd = None if self.usd is None else count * self.usd
        return Spent(calls=count * self.calls, tokens=count * self.tokens, usd=usd)

    def plus(self, *others: "Spent") -> "Spent":
        every = (self, *others)
        return Spent(
            calls=sum(one.calls for one in every),
            tokens=sum(one.tokens for one in every),
            usd=total_usd(one.usd for one in every),
        )


class Left(NamedTuple):
    """Amounts that may be spent; None is no limit.

    Tokens and dollars may be below zero, because calls in flight are still paid when they run out.
    """

    calls: int | None
    tokens: int | None
    usd: float | None

    @property
    def used_up(self) -> str:
        """Return the configuration key of a limit of which nothing is left; empty if there is none."""
        amounts = (("max_calls", self.calls), ("max_tokens", self.tokens), ("max_usd", self.usd))
        return next((f"budget.{name}" for name, amount in amounts if amount is not None and amount <= 0), "")

    def minus(self, spent: Spent) -> "Left":
        """Return the amounts after spending; no dollars if a price is not known."""
        usd = self.usd
        if usd is not None:
            # Amounts of unknown price are not spent any further.
            usd = 0.0 if spent.usd is None else usd - spent.usd
        return Left(
            calls=None if self.calls is None else self.calls - spent.calls,
            tokens=None if self.tokens is None else self.tokens - spent.tokens,
            usd=usd,
        )

    def plus(self, other: "Left", times: int = 1) -> "Left":
        """Return the amounts with so many times those of a part of the same budget."""
        return Left(
            calls=None if self.calls is None or other.calls is None else self.calls + times * other.calls,
            tokens=None if self.tokens is None or other.tokens is None else self.tokens + times * other.tokens,
            usd=None if self.usd is None or other.usd is None else self.usd + times * other.usd,
        )

    def over(self, parts: int) -> "Left":
        """Return one of so many equal parts, of calls at least one while there are any."""
        return Left(
            calls=None if self.calls is None else min(self.calls, max(1, self.calls // parts)),
            tokens=None if self.tokens is None else self.tokens // parts,
            usd=None if self.usd is None else self.usd / parts,
        )


def left_of(budget: BudgetGroup, *spent: Spent) -> Left:
    return Left(budget.max_calls, budget.max_tokens, budget.max_usd).minus(Spent().plus(*spent))


def share_of(budget: BudgetGroup, part: Fraction, *, others: Spent, beside: Spent, own: Spent) -> Left:
    """Return what a task may still spend.

    That is its part of what was left before its stage, without what it has spent, and no more than what is left now.

    Args:
        budget: the limits of the run.
        part: the task's part of its stage; the parts of all its tasks are at most 1.
        others: spent by the other stages, or held by their tasks.
        beside: the same of the other tasks of the stage.
        own: the same of the task, former attempts included.
    """
    before, now = left_of(budget, others), left_of(budget, others, beside)
    whole = [
        None if was is None or left is None else min(max(1, math.floor(was * part)), left)
        for was, left in ((before.calls, now.calls), (before.tokens, now.tokens))
    ]
    usd = None if before.usd is None or now.usd is None else min(before.usd * float(part), now.usd)
    return Left(whole[0], whole[1], usd).minus(own)


class StageCost(Value):
    """All calls of one role for one stage."""

    stage: str
    role: Role
    calls: int
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """Sum over the calls, also over those at the same time."""
    usd: float | None
    """US dollars; None if the price is not known."""


def spent(calls: Iterable[ModelCall], prices: Prices) -> Spent:
    """Return the total cost of the calls, in whatever order they are given."""
    costs = by_stage(calls, prices)
    return Spent(
        calls=sum(cost.calls for cost in costs),
        tokens=sum(cost.prompt_tokens + cost.completion_tokens for cost in costs),
        usd=total_usd(cost.usd for cost in costs),
    )


def by_stage(calls: Iterable[ModelCall], prices: Prices) -> tuple[StageCost, ...]:
    """Return the cost of each stage, in the order in which the stages began; the calls are in any order."""
    groups: dict[tuple[str, Role], _Tally] = {}
    for call in calls:
        groups.setdefault((call.stage, call.role), _Tally()).add(call)
    began = sorted(groups.items(), key=lambda group: (group[1].started, group[0]))
    return tuple(tally.cost(stage, role, prices.get(role)) for (stage, role), tally in began)


def total_usd(costs: Iterable[float | None]) -> float | None:
    """Return the sum; None if one is not known."""
    known = list(costs)
    priced = [usd for usd in known if usd is not None]
    return sum(priced) if len(priced) == len(known) else None


def exceeded(total: Spent, steps: Sequence[Spent], budget: BudgetGroup) -> str:
    """Return the reason to stop: a limit is used up, or a step could pass it that takes as much as any of `steps` did.

    Empty if the run may go on. One whose price is not known does not under budget.max_usd.
    """
    prices = [step.usd for step in steps]
    dearest = None if None in prices else max(filter(None, prices), default=0.0)
    if budget.max_usd is not None and (total.usd is None or dearest is None):
        return f"budget.max_usd = {budget.max_usd:g}: what the run has spent is not known; set budget.prices"
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
            return f"budget.{name} = {shown}: {used:{style}} are spent and a step takes up to {more:{style}} more"
    return ""


def passed_limits(budget: BudgetGroup, calls: int, tokens: int, usd: float | None) -> Iterator[str]:
    """Yield each limit that is below what a run may take, with its name; of an unknown price none is."""
    for name, limit, reached in (
        ("max_calls", budget.max_calls, calls),
        ("max_tokens", budget.max_tokens, tokens),
        ("max_usd", budget.max_usd, usd),
    ):
        if limit is not None and reached is not None and reached > limit:
            yield f"budget.{name} = {limit:,}"


def model_names(model: ModelGroup) -> dict[Role, str | None]:
    """Return the model of each role; None for one that there is none for."""
    return {"target": model.target, "optimizer": model.optimizer, "judge": model.judge}


def unpriced(prices: Prices, config: TrainConfig, asked: Collection[Role] = ROLES) -> str:
    """Return why budget.max_usd cannot be kept: a model's price is not known; empty if it can, or is unset."""
    limit, names = config.budget.max_usd, model_names(config.model)
    unknown = [(role, names[role]) for role in asked if names[role] is not None and prices.get(role) is None]
    if limit is None or not unknown:
        return ""
    named = " and ".join(f"the {role} {name}" for role, name in unknown)
    return (
        f"budget.max_usd = {limit:g}: no price is known for {named}; set budget.prices, such as "
        f'{{"{unknown[0][1]}": {{"input": 1.25, "output": 10}}}} in US dollars for a million tokens, or limit '
        "budget.max_tokens instead"
    )


@dataclass
class _Tally:
    """The calls of one role for one stage, of which there may be many."""

    started: float = math.inf
    calls: int = 0
    attempts: int = 0
    usual: tuple[int, int] = (0, 0)
    """Tokens read and written."""
    batched: tuple[int, int] = (0, 0)
    seconds: list[float] = field(default_factory=list)

    def add(self, call: ModelCall) -> None:
        self.started = min(self.started, call.started)
        self.calls += 1
        self.attempts += call.attempts
        prompt, completion = self.batched if call.batch else self.usual
        tokens = prompt + call.prompt_tokens, completion + call.completion_tokens
        if call.batch:
            self.batched = tokens
        else:
            self.usual = tokens
        self.seconds.append(call.seconds)

    def cost(self, stage: str, role: Role, price: ModelPrice | None) -> StageCost:
        prompt, completion = map(sum, zip(self.usual, self.batched, strict=True))
        return StageCost(
            stage=stage,
            role=role,
            calls=self.calls,
            attempts=self.attempts,
            prompt_tokens=prompt,
            completion_tokens=completion,
            # fsum: a plain sum depends on the order.
            seconds=math.fsum(self.seconds),
            usd=None if price is None else BATCH_SHARE * price.usd(*self.batched) + price.usd(*self.usual),
        )
