"""The harness of an agent CLI, with a home folder per item, the installed skill and a time limit."""

import asyncio
import json
import os
import re
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillopt_airflow.core.values.failure_reasons import SENTENCES, ending_status, error_status, lasting_error
from skillopt_airflow.core.values.pictures import marks_in
from skillopt_airflow.core.values.skill import skill_name
from skillopt_airflow.core.values.text import shortened, storable
from skillopt_airflow.core.values.types import Message, Status, Trajectory
from skillopt_airflow.rollout.harnesses.conversation import MAX_ERROR_CHARS, REFUSALS, item_pictures, reason
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import folder_variables, has_output
from skillopt_airflow.tasks.protocols import Benchmark, OffersTools, Workspace

MAX_MESSAGES = 100
MAX_MESSAGE_CHARS = 4000
MAX_FINAL_CHARS = 100_000
BUDGET_SPENT = re.compile(r"\bbudget\.\w+ is spent\b")
"""Text of the gateway's 402. A provider's 402 means an empty account, not the run's budget."""


def install_skill(skills: Path, benchmark: str, text: str) -> None:
    """Write a SKILL.md to a CLI's folder of skills. Its front matter describes when to use it."""
    name = skill_name(benchmark)
    folder = skills / name
    folder.mkdir(parents=True)
    # Every JSON string is a YAML string.
    description = json.dumps(f"How to do the {benchmark} benchmark's items. Use it for each of them.")
    matter = f"name: {name}\ndescription: {description}\n"
    (folder / "SKILL.md").write_text(f"---\n{matter}---\n\n{text}", encoding="utf-8")


@dataclass
class Trace:
    """The content of a CLI's output, read line by line."""

    messages: list[Message] = field(default_factory=list)
    final: str = ""
    """The target's last text."""
    finished: bool = False
    """True if the CLI reports success."""
    error: str = ""
    http_status: int | None = None
    refused: Status | None = None
    """`refused`, `too_long` or `truncated`, if the CLI reports it."""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add_text(self, text: str) -> None:
        """Add a text of the target. The last one is the answer, so it replaces a turn if there are too many."""
        self.final = storable(text[-MAX_FINAL_CHARS:])
        self.messages = self.messages[: MAX_MESSAGES - 1]
        self.add("assistant", text)

    def add(self, role: str, text: str) -> None:
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append(Message.model_validate({"role": role, "content": shortened(text, MAX_MESSAGE_CHARS)}))

    def fail(self, error: str, http_status: int | None = None) -> None:
        self.error, self.http_status = error, http_status
        self.refused = error_status(http_status or 0, error) or self.refused

    def end(self, reason: object) -> None:
        if ending_status(reason) is Status.REFUSED:
            self.refused = Status.REFUSED

    @property
    def status(self) -> Status:
        if self.refused is not None:
            return self.refused
        if self.http_status == 402 and not BUDGET_SPENT.search(self.error):
            return Status.MODEL_ERROR
        if self.error:
            return REFUSALS.get(self.http_status or 0, Status.MODEL_ERROR)
        return Status.OK if self.finished and self.calls else Status.MODEL_ERROR


class CLIHarness(ABC):
    """Runs an item in an agent CLI. Subclasses start the CLI and parse its trace.

    The container is the sandbox: it has no network, privileges or secrets, and runs only this item. The CLI therefore
    asks for no permissions, and its own sandbox, which would need more privileges, is off.
    """

    def __init__(self, settings: RolloutSettings, benchmark: Benchmark, base_url: str) -> None:
        self.settings = settings
        self.benchmark = benchmark
        self.base_url = base_url

    async def aclose(self) -> None:
        return

    @abstractmethod
    def prepare(self, home: Path, skill: str) -> None:
        """Write the configuration and the skill to an empty home folder."""

    @abstractmethod
    def command(self, pictures: Sequence[str]) -> Sequence[str]:
        """Return the program and its arguments, at most 128 KB each. It reads the prompt from standard input.

        `pictures` are the paths of the task's pictures.
        """

    @abstractmethod
    def prompt(self, task: str, pictures: Sequence[str]) -> str:
        """Return the prompt that invokes the skill with the task."""

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """Return environment variables, in addition to those of every CLI."""

    @abstractmethod
    def read(self, lines: Iterable[bytes]) -> Trace: ...

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        started, clock = time.time(), time.monotonic()
        task = self._task(item, workspace)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            home = folder / "home"
            home.mkdir()
            self.prepare(home, skill)
            shown = item_pictures([task], workspace)
            pictures = [str(Path(workspace.inputs, name)) for name in dict.fromkeys(marks_in(task)) if name in shown]
            (folder / "prompt").write_text(self.prompt(task, pictures), encoding="utf-8")
            exit_status = await self._execute(self.command(pictures), home, folder, workspace)
            # Read line by line, since a trace can be as large as the container allows.
            with (folder / "trace").open("rb") as lines:
                trace = self.read(lines)
            status, error = _outcome(trace, exit_status, _tail(folder / "errors"), self.settings.agent_seconds)
            if status is Status.OK and not trace.final.strip() and not has_output(workspace):
                status = Status.EMPTY
        opening = (Message(role="system", content=skill), Message(role="user", content=task))
        return Trajectory(
            item_id=item.id,
            status=status,
            error=error,
            lasting_error=lasting_error(trace.http_status) if status is Status.MODEL_ERROR else "",
            messages=(*opening, *trace.messages),
            answer=self.benchmark.answer(trace.final) if status.scored else "",
            calls=trace.calls,
            prompt_tokens=trace.prompt_tokens,
            completion_tokens=trace.completion_tokens,
            started=started,
            seconds=time.monotonic() - clock,
        )

    def _task(self, item: PublicItem, workspace: Workspace) -> str:
        """Return the agent's task if there are files, else the chat harness's user messages."""
        if isinstance(self.benchmark, OffersTools):
            task, corpus = self.benchmark.task(item.public), workspace.corpus
            if workspace.repository:
                return task
            if self.benchmark.runs_code or workspace.input_names():
                task += (
                    f"\n\nThe files that you are given lie in {workspace.inputs} ($INPUTS). "
                    f"What you make has to be in {workspace.outputs} ($OUTPUTS) at the end."
                )
            if corpus.folder:
                task += f"\n\nThe documents lie in {corpus.folder} ($CORPUS), and cannot be changed."
            if self.benchmark.runs_code or workspace.input_names() or corpus.folder:
                return task
        opening = self.benchmark.messages(item.public, "")
        return "\n\n".join(message.content for message in opening if message.role == "user")

    async def _execute(self, command: Sequence[str], home: Path, folder: Path, workspace: Workspace) -> int | None:
        """Return the exit status of the CLI, or None after a timeout. Kills its process group."""
        env = {**folder_variables(workspace, str(home)), "LANG": "C.UTF-8"}
        env |= {**workspace.agent_variables(), **self.variables()}
        # No pipes: a program that outlives the CLI would keep them open.
        with (
            (folder / "prompt").open("rb") as prompt,
            (folder / "trace").open("wb") as out,
            (folder / "errors").open("wb") as errors,
        ):
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=workspace.repository or workspace.outputs,
                env=env,
                stdin=prompt,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            try:
                return await asyncio.wait_for(process.wait(), self.settings.agent_seconds)
            except TimeoutError:
                return None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def http_status_in(text: str) -> int | None:
    match = re.search(r"\bstatus:? (\d{3})\b", text)
    return int(match[1]) if match else None


def _outcome(trace: Trace, exit_status: int | None, errors: str, limit: float) -> tuple[Status, str]:
    if exit_status is None:
        return Status.TIMEOUT, f"the CLI was not done after {limit:.0f} s (sandbox.timeout)"
    if trace.status is Status.OK and exit_status == 0:
        return Status.OK, ""
    status = Status.MODEL_ERROR if trace.status is Status.OK else trace.status
    if status in SENTENCES:
        why = f"{SENTENCES[status]}: {trace.error or trace.final}"
    else:
        why = trace.error or f"the CLI ended with exit status {exit_status} and no result: {errors}"
    return status, reason(why)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_ERROR_CHARS))
        return file.read().decode(errors="replace")
