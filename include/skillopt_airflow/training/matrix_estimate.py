"""An estimate of a transfer matrix before its first call: model calls at most, tokens and price as a range."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from skillopt_airflow.core.budget import ModelPrice, passed_limits, total_usd
from skillopt_airflow.core.density import CHARS_PER_TOKEN
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.resource_groups import BudgetGroup
from skillopt_airflow.core.shortening import MOST_TOLD_CHARS
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.transfer_matrix import MatrixCell
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.training.estimate import (
    JUDGE_CHARS,
    JUDGE_TOKENS,
    LOOKED_AT,
    ROLLOUT_TOKENS,
    TOLD_CHARS,
    Case,
    Prompt,
    Tokens,
    earlier_chars,
    short,
    turns,
)
from skillopt_airflow.training.matrix_cells import in_cell, names
from skillopt_airflow.training.rollout_plan import ids
from skillopt_airflow.training.run import TrainingRun


class CellEstimate(NamedTuple):
    """The rollouts of all skills in one cell."""

    cell: MatrixCell
    rollouts: int
    """All that the matrix rests on."""
    open: int
    """Those that no run has stored with a score."""
    calls: int
    """Of the target at most, without calls that are tried again."""
    judged: int
    """Calls of a judge at most."""
    likely: Tokens
    """Of the target, with answers of a likely length."""
    most: Tokens
    """Of the target, with the longest answers."""
    judge: Tokens
    """Of the judge."""


@dataclass(frozen=True)
class MatrixEstimate:
    """A matrix before its first call; the tokens rest on the constants of a training's estimate."""

    cells: Sequence[CellEstimate]
    budget: BudgetGroup
    judge_price: ModelPrice | None

    @property
    def rollouts(self) -> int:
        """Rollouts that are to be made."""
        return sum(cell.open for cell in self.cells)

    @property
    def calls(self) -> int:
        """Calls of all models at most."""
        return sum(cell.calls + cell.judged for cell in self.cells)

    def tokens(self, case: Case) -> int:
        """Return all tokens, of all models."""
        return sum(sum(getattr(cell, case)) + sum(cell.judge) for cell in self.cells)

    def usd(self, case: Case) -> float | None:
        """Return US dollars; None if the price of a model that is asked is not known."""
        return total_usd(self._usd(cell, case) for cell in self.cells)

    def lines(self) -> Iterator[str]:
        """Yield lines for a log: each cell, the totals, and the budget's limits that may end it."""
        yield "estimate for the whole matrix, at most, without calls that are tried again:"
        for cell in self.cells:
            yield (
                f"  {names(cell.cell)}: {cell.open:,} of {cell.rollouts:,} rollouts are to be made, {cell.calls:,} "
                f"calls, {short(sum(cell.likely))} to {short(sum(cell.most))} tokens, "
                f"{_range(self._usd(cell, 'likely'), self._usd(cell, 'most'))}"
            )
        judged = sum(cell.judged for cell in self.cells)
        by_judge = f", {judged:,} of them the judge's" if judged else ""
        yield (
            f"  together: {self.rollouts:,} rollouts, {self.calls:,} calls{by_judge}, "
            f"{short(self.tokens('likely'))} to {short(self.tokens('most'))} tokens, "
            f"{_range(self.usd('likely'), self.usd('most'))}"
        )
        for limit in passed_limits(self.budget, self.calls, self.tokens("most"), self.usd("most")):
            yield (
                f"  {limit} may not be enough for the whole matrix; rollouts beyond it end with status budget, and "
                "cells with too few scores decide nothing"
            )
        for harness in dict.fromkeys(one.cell.harness for one in self.cells):
            if HARNESSES[harness].is_cli:
                yield f"  {harness} decides by itself how many calls an item takes; here an item counts as one"

    def _usd(self, cell: CellEstimate, case: Case) -> float | None:
        target: Tokens = getattr(cell, case)
        parts = [(cell.cell.price, target), (self.judge_price, cell.judge)]
        return total_usd(None if price is None else price.usd(*tokens) for price, tokens in parts if sum(tokens))


def estimate_matrix(run: TrainingRun, split: Split, skills: Mapping[str, SkillDocument]) -> MatrixEstimate:
    """Estimate a prepared run from the prompts of its first items, without what is stored already.

    Args:
        run: the run, with its cells.
        split: of which all items run.
        skills: the different skills, by any names.
    """
    looked_at = run.items_of(split, ids(run.item_refs(split)[:LOOKED_AT]))
    cells = []
    for place, cell in enumerate(run.record.cells):
        here, (chars, pictures) = in_cell(run, place), Prompt.of(run.benchmark, cell.target, looked_at)
        judges, answer = here.config.model.judge is not None, max(ROLLOUT_TOKENS, here.config.model.max_tokens)
        missing = {name: open_rollouts(here, split, skill) for name, skill in skills.items()}
        count, each = sum(missing.values()), turns(here.config)
        shown = count * (chars / CHARS_PER_TOKEN + pictures)
        shown += sum(missing[name] * len(skill.text) for name, skill in skills.items()) / CHARS_PER_TOKEN
        likely, most = (
            round(each * (shown + count * earlier_chars(each, *turn) / CHARS_PER_TOKEN))
            for turn in ((ROLLOUT_TOKENS, TOLD_CHARS), (answer, MOST_TOLD_CHARS))
        )
        asked = JUDGE_CHARS / CHARS_PER_TOKEN + chars / CHARS_PER_TOKEN + ROLLOUT_TOKENS
        cells.append(
            CellEstimate(
                cell=cell,
                rollouts=len(skills) * len(run.item_refs(split)) * here.config.evaluation.draws,
                open=count,
                calls=each * count,
                judged=count if judges else 0,
                likely=Tokens(likely, each * count * ROLLOUT_TOKENS),
                most=Tokens(most, each * count * answer),
                judge=Tokens(round(count * asked), count * JUDGE_TOKENS) if judges else Tokens(0, 0),
            )
        )
    return MatrixEstimate(cells, run.config.budget, run.record.prices.get("judge"))


def open_rollouts(run: TrainingRun, split: Split, skill: SkillDocument) -> int:
    """Return how many rollouts of a skill on a split are to be made; what waits for its judge alone is none."""
    items = [item for item in run.item_refs(split) if not item.unusable]
    left = 0
    for draw in range(run.config.evaluation.draws):
        found = run.results(split, skill, draw, items).values()
        left += len(items) - sum(one.status.scored or one.status is Status.JUDGE_ERROR for one in found)
    return left


def _range(likely: float | None, most: float | None) -> str:
    if likely is None or most is None:
        return "no price known; set budget.prices"
    return f"{likely:,.2f} to {most:,.2f} US dollars"
