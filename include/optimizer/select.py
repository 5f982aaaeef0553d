"""Select: above the learning rate, the optimizer ranks the edits and the best ones stay (paper section 3.4)."""

from collections.abc import Sequence

from pydantic import BaseModel

from include.core.errors import ModelOutputError
from include.core.ports import Optimizer
from include.core.types import Edit, Patch
from include.optimizer import prompts
from include.optimizer.sections import edits_section, section


class Ranking(BaseModel):
    """The answer of a rank call: indices of all edits, the best first."""

    order: list[int]


def select(optimizer: Optimizer, skill: str, patch: Patch, budget: int) -> Patch:
    """The `budget` best edits of the patch, best first; at or below the budget all of them, without a call."""
    if len(patch.edits) <= budget:
        return patch
    prompt = "\n\n".join((section("skill", skill), section("budget", str(budget)), edits_section(patch.edits)))
    try:
        answer = optimizer.ask("rank", prompts.load("rank"), prompt, Ranking)
    except ModelOutputError as error:
        return _by_rule(patch, budget, str(error))
    if not any(0 <= index < len(patch.edits) for index in answer.order):
        return _by_rule(patch, budget, "the answer names none of the edits")
    return patch.model_copy(update={"edits": _in_order(patch.edits, answer.order)[:budget]})


def by_support(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Most support first; equal support keeps its order."""
    return tuple(sorted(edits, key=lambda edit: -edit.support_count))


def _by_rule(patch: Patch, budget: int, reason: str) -> Patch:
    fallback = "; ".join(part for part in (patch.fallback, f"rank: {reason}") if part)
    return patch.model_copy(update={"edits": by_support(patch.edits)[:budget], "fallback": fallback})


def _in_order(edits: Sequence[Edit], order: Sequence[int]) -> tuple[Edit, ...]:
    """Unknown and repeated indices are passed over, edits that were left out follow in their own order."""
    known = [index for index in dict.fromkeys(order) if 0 <= index < len(edits)]
    left_out = [index for index in range(len(edits)) if index not in known]
    return tuple(edits[index] for index in (*known, *left_out))
