"""Run every item of a container's input folder and write what happened, one line as each one ends."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TextIO

from pydantic_core import PydanticSerializationError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.failure_reasons import shared_lasting_failure
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.rollout.corpus_folder import CorpusFolder
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings, image_program
from skillopt_airflow.rollout.workspace import ItemFolders, Repository, WebSearch, files_left
from skillopt_airflow.rollout.world_program import take
from skillopt_airflow.tasks.protocols import SEALED, Benchmark, Workspace

CHUNK_BYTES = 65536


class Runner(Protocol):
    """Runs items, several at the same time."""

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """Return what the target did with the item; a failure of the provider is a status, never an exception.

        The workspace is the item's own. The files in its outputs are named by the caller, not by the runner.
        """

    async def aclose(self) -> None: ...


def runner(settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> Runner:
    """Return the runner of the harness that the settings name, which finds the gateway at a socket or an address.

    It is imported here: what one harness needs, such as the SDKs of model servers, takes a second of a processor that
    the others do without.
    """
    module, _, name = HARNESSES[settings.harness].runner.partition(":")
    made: Runner = getattr(import_module(module), name)(settings, benchmark, gateway)
    return made


@asynccontextmanager
async def forwarded(gateway: str) -> AsyncIterator[str]:
    """Yield an address such as `http://127.0.0.1:<port>` that leads to the gateway while the block runs.

    Args:
        gateway: path of a unix socket, or an address `http://host:port`, which is taken as it is.
    """
    if gateway.startswith("http://"):
        yield gateway.rstrip("/")
        return

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            gateway_reader, gateway_writer = await asyncio.open_unix_connection(gateway)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_pipe(reader, gateway_writer), _pipe(gateway_reader, writer))
        finally:
            writer.close()
            gateway_writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


CORPUS = Path("/corpus")
"""Where a sandbox has the run's corpus."""
RELEASE_SECONDS = 0.1
"""Pause until an item that may not begin yet asks again."""


@dataclass(frozen=True)
class Job:
    """The content of an input folder: settings.json, skill.md, items.jsonl."""

    settings: RolloutSettings
    skill: str
    items: Sequence[PublicItem]

    @classmethod
    def read(cls, folder: Path) -> "Job":
        """Raise pydantic's ValidationError if the host wrote something else than this program expects."""
        lines = (folder / "items.jsonl").read_bytes().splitlines()
        return cls(
            settings=RolloutSettings.model_validate_json((folder / "settings.json").read_bytes()),
            skill=(folder / "skill.md").read_bytes().decode(),
            items=[PublicItem.model_validate_json(line) for line in lines],
        )


async def run(in_folder: Path, out_folder: Path, gateway: str, corpus: Path = CORPUS) -> None:
    """Append a line to `out_folder`/trajectories.jsonl for each item, flushed at once, in order of completion.

    Where the settings say so, items are left when those before them failed as they would.

    Args:
        in_folder: the content of a `Job`, and what item number n, counted from 0, is given in `files/<n>`.
        out_folder: gets in `files/<n>` what the target makes of it; has in `sealed/<n>` what its world is made of.
        gateway: path of the model gateway's unix socket, or its address `http://host:port`.
        corpus: folder of the documents that all items share; there is none where the run has no corpus.
    """
    job = Job.read(in_folder)
    if other := _other_program(job.settings):
        _refuse(job, out_folder, other)
        return
    sealed = take(out_folder / SEALED)
    benchmark = benchmarks.load(job.settings.benchmark, job.settings.task)
    documents = CorpusFolder(corpus)
    # A CLI knows no sockets.
    leads = forwarded(gateway) if HARNESSES[job.settings.harness].is_cli else nullcontext(gateway)
    free = asyncio.Semaphore(job.settings.concurrency)
    ended: list[Trajectory] = []
    repository = Repository.opened()
    async with leads as address, aclosing(runner(job.settings, benchmark, address)) as running:

        async def work(index: int, item: PublicItem, out: TextIO) -> None:
            inputs, outputs = (folder / "files" / str(index) for folder in (in_folder, out_folder))
            patience = job.settings.search_patience
            web = None if patience is None else WebSearch(gateway, patience)
            workspace = ItemFolders(
                inputs,
                outputs,
                job.settings.code_timeout,
                corpus=documents,
                web=web,
                sealed=sealed.get(index, {}),
                repository=repository,
            )
            async with free:
                await _released(in_folder, index)
                if job.settings.gives_up and shared_lasting_failure(ended, len(job.items)):
                    return
                trajectory = await _trajectory(running, item, job.skill, workspace)
            if web is not None and web.lost:
                # What the target made of that says nothing about it.
                trajectory = trajectory.model_copy(update={"status": Status.SANDBOX_ERROR, "error": storable(web.lost)})
            ended.append(trajectory)
            out.write(_row(trajectory) + "\n")
            out.flush()

        with (out_folder / "trajectories.jsonl").open("a", encoding="utf-8") as out:
            async with asyncio.TaskGroup() as group:
                for index, item in enumerate(job.items):
                    group.create_task(work(index, item, out))


def _other_program(settings: RolloutSettings) -> str:
    """Return why these rollouts must not be made here, since they would be stored as another program's, or nothing."""
    if not settings.image_program:
        return ""
    try:
        own = image_program(settings.benchmark, declared=settings.task is not None)
    except ConfigError as error:
        own = str(error)
    if own == settings.image_program:
        return ""
    return (
        f"the sandbox image has another rollout program or adapter.py than the worker ({own}, and not "
        f"{settings.image_program}): run `make up` or `make image NAME=...`, and push the image if a registry has it"
    )


def _refuse(job: Job, out_folder: Path, why: str) -> None:
    rows = [Trajectory(item_id=item.id, status=Status.SANDBOX_ERROR, error=why).model_dump_json() for item in job.items]
    (out_folder / "trajectories.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


async def _released(in_folder: Path, index: int) -> None:
    """Wait until the host lets the item begin, if it says how many may."""
    told = in_folder / "released"
    while told.exists() and int(told.read_bytes()) <= index:
        await asyncio.sleep(RELEASE_SECONDS)


def _row(trajectory: Trajectory) -> str:
    """Return the trajectory as a line of JSON; one that JSON can't hold costs its item alone."""
    try:
        return trajectory.model_dump_json()
    except PydanticSerializationError as error:
        why = f"The trajectory can't be written as JSON: {error}"[:500]
        return Trajectory(item_id=trajectory.item_id, status=Status.SANDBOX_ERROR, error=why).model_dump_json()


async def _trajectory(running: Runner, item: PublicItem, skill: str, workspace: ItemFolders) -> Trajectory:
    try:
        Path(workspace.outputs).mkdir(parents=True, exist_ok=True)
        trajectory = await running.run(item, skill, workspace)
        workspace.keep_difference()
    except Exception as error:  # noqa: BLE001 - one broken item must not end the others; the row keeps what happened
        text = f"{type(error).__name__}: {error}"[:500]
        return Trajectory(item_id=item.id, status=Status.SANDBOX_ERROR, error=text)
    return trajectory.model_copy(update={"files": files_left(workspace.outputs)})
