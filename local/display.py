"""Progress of the platform's start: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class Display:
    """Parts that get ready in parallel; safe to call from threads."""

    def __init__(self, parts: Iterable[str]) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._names = list(parts)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        self._tasks = {name: self._bars.add_task(name, total=1, note="") for name in self._names}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def note(self, part: str, text: str) -> None:
        """Show what a part is doing now."""
        if self.console.is_terminal:
            self._bars.update(self._tasks[part], note=text)
        else:
            self._line(part, text)

    def done(self, part: str) -> None:
        """Show that a part is ready."""
        if self.console.is_terminal:
            self._bars.update(self._tasks[part], completed=1, note="ready")
        else:
            self._line(part, "ready")

    def _line(self, part: str, text: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - self._began:5.1f} s] {part}: {text}\n")
        sys.stdout.flush()
