"""The output of `make try`: each item as it ends, then scores, cost, and what could not be judged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from skillopt_airflow.core.budget import ModelPrice, spent
from skillopt_airflow.core.failure_reasons import FailureReason
from skillopt_airflow.core.hidden_text import visible
from skillopt_airflow.core.types import Message, Split
from skillopt_airflow.training.trial import Trial, Tried

PLAIN_WIDTH = 100


class TrialDisplay:
    """Prints to the terminal, with colours and a spinner if it is one; safe to call from threads."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        self._spinner: Spinner | None = None
        self._rows: list[Tried] = []
        self._total = 0
        self._system = ""

    def begin(self, trial: Trial, split: Split, skill: Path, target: str) -> None:
        self._total = len(trial.items)
        self._line(f"{trial.benchmark}: {_counted(self._total, 'item')} of {split} from {trial.config.data.uri}")
        self._line(f"Skill      {skill}")
        self._line(f"Target     {target}")
        where = "a process of its own, no sandbox"
        if trial.needs_image:
            where = "a sandbox container for each item" if trial.one_item_each else "a sandbox container"
        self._line(f"Harness    {trial.config.model.harness}, in {where}")

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show how many items have ended, while the block runs."""
        with self._console.status(f"0 of {self._total} items") as spinner:
            self._spinner = spinner
            yield
        self._spinner = None

    def note(self, text: str) -> None:
        self._line(text, "dim")

    def show(self, row: Tried) -> None:
        self._rows.append(row)
        trajectory = row.trajectory
        self._console.rule(Text(visible(f"{len(self._rows)} of {self._total}: {row.item.id}")), align="left")
        for message in trajectory.messages:
            self._message(message)
        if row.score is None:
            self._field("failed", row.unjudged or f"{trajectory.status}: {trajectory.error}", "red")
            if row.unjudged:
                self._field("answer", trajectory.answer)
        else:
            self._field("answer", trajectory.answer)
            style = "green" if row.score.hard == 1 else "yellow"
            self._field("score", f"hard {row.score.hard:g}, soft {row.score.soft:.2f}", style)
            self._field("feedback", row.score.feedback)
        if trajectory.files:
            self._field("files", ", ".join(trajectory.files))
        tokens = f"{trajectory.prompt_tokens} + {trajectory.completion_tokens} tokens"
        self._field("cost", f"{_counted(trajectory.calls, 'call')}, {tokens}, {trajectory.seconds:.1f} s")
        if self._spinner is not None:
            self._spinner.update(f"{len(self._rows)} of {self._total} items")

    def end(self, trial: Trial, price: ModelPrice | None, *, is_free: bool) -> None:
        self._console.rule(align="left")
        scores = [row.score for row in self._rows if row.score is not None]
        if scores:
            hard, soft = (sum(values) / len(scores) for values in zip(*((s.hard, s.soft) for s in scores), strict=True))
            self._line(f"Scores     {len(scores)} of {self._total} items: hard {hard:.3f}, soft {soft:.3f} on average")
        total = spent(trial.calls, {"target": price})
        dollars = "free" if is_free else "price unknown" if total.usd is None else f"${total.usd:.4f}"
        self._line(f"Cost       {_counted(total.calls, 'call')}, {total.tokens} tokens, {dollars}")
        if not self.all_scored():
            self._failures()

    def all_scored(self) -> bool:
        return sum(row.score is not None for row in self._rows) == self._total

    def _failures(self) -> None:
        failed = [row for row in self._rows if row.score is None]
        self._line(f"No score   {len(failed)} of {self._total} items:", "red")
        for row in failed:
            self._line(f"  {row.item.id}: {row.unjudged or f'{row.trajectory.status}: {row.trajectory.error}'}", "red")
        reason = FailureReason.of((row.trajectory for row in failed), self._total)
        if reason is not None and reason.count > 1:
            self._line(f"Most often {reason}", "red")

    def _message(self, message: Message) -> None:
        text = message.content
        if message.role == "system":
            # The skill is the same for every item, and long.
            text, self._system = ("(as before)" if text == self._system else text), text
        self._field(message.role, text, "dim" if message.role == "system" else "")

    def _field(self, name: str, text: str, style: str = "") -> None:
        shown = visible(text)
        label = Text(name if "\n" in shown else f"{name:10}", style="bold")
        between = "\n" if "\n" in shown else " "
        self._console.print(Text.assemble(label, between, (shown, style)), soft_wrap=True)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text), style=style), soft_wrap=True)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
