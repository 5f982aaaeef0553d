"""Select: above the learning rate, the optimizer ranks the edits and the best ones stay (paper section 3.4)."""

from collections.abc import Sequence

from pydantic import Field

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.protocols import Optimizer
from skillopt_airflow.core.types import Edit, Patch
from skillopt_airflow.optimizer import prompts
from skillopt_airflow.optimizer.answers import ModelAnswer, joined, said
from skillopt_airflow.optimizer.sections import budget_section, edits_section, meta_skill_section, prompt_of, section


class Ranking(ModelAnswer):
    """The answer of a rank call."""

    reasoning: str = Field(default="", description="How the edits compare by the criteria, in a few sentences.")
    order: list[int] = Field(description="Indices of all edits, the best first.")


def select(optimizer: Optimizer, skill: str, patch: Patch, budget: int | None, meta_skill: str) -> Patch:
    """Keep the `budget` best edits of the patch, best first; without a call if there are no more than that.

    None is no limit. Of rewrites of the whole body only one can stay, whatever the budget.
    """
    most = _most(patch.edits, budget)
    if len(patch.edits) <= most:
        return patch
    if most == 0:
        return patch.model_copy(update={"edits": ()})
    prompt = prompt_of(
        section("skill", skill), budget_section(most), edits_section(patch.edits), meta_skill_section(meta_skill)
    )
    try:
        answer = optimizer.ask("rank", prompts.load("rank"), prompt, Ranking)
    except ModelOutputError as error:
        return _by_rule(patch, most, str(error))
    if not any(0 <= index < len(patch.edits) for index in answer.order):
        return _by_rule(patch, most, "the answer names none of the edits")
    return patch.model_copy(update={"edits": _in_order(patch.edits, answer.order)[:most]})


def by_support(edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Sort by support, highest first; equal support keeps its order."""
    return tuple(sorted(edits, key=lambda edit: -edit.support_count))


def _most(edits: Sequence[Edit], budget: int | None) -> int:
    most = len(edits) if budget is None else budget
    return min(most, 1) if any(edit.op == "rewrite" for edit in edits) else most


def _by_rule(patch: Patch, budget: int, reason: str) -> Patch:
    fallback = joined(patch.fallback, said("rank", [reason]))
    return patch.model_copy(update={"edits": by_support(patch.edits)[:budget], "fallback": fallback})


def _in_order(edits: Sequence[Edit], order: Sequence[int]) -> tuple[Edit, ...]:
    """Sort by the answer, without its unknown and repeated indices; edits that it left out follow in their order."""
    known = {index: None for index in order if 0 <= index < len(edits)}
    left_out = [index for index in range(len(edits)) if index not in known]
    return tuple(edits[index] for index in (*known, *left_out))
