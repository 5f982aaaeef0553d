"""The rollout program: runs all items of an input folder, and writes one line per finished item."""

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
from skillopt_airflow.rollout.workspace import ItemFolders, Repository, WebSearch, output_files
from skillopt_airflow.rollout.world_program import take_sealed_files
from skillopt_airflow.tasks.protocols import SEALED, Benchmark, Workspace

CHUNK_BYTES = 65536


class Runner(Protocol):
    """Runs items concurrently."""

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """Return the trajectory of an item. A provider's failure is a status, never an exception.

        The workspace belongs to this item. The caller lists its output files.
        """

    async def aclose(self) -> None: ...


def runner(settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> Runner:
    """Return the runner of the settings' harness.

    Imported here, because some harnesses need a second of CPU time for the SDKs of model servers.
    """
    module, _, name = HARNESSES[settings.harness].runner.partition(":")
    result: Runner = getattr(import_module(module), name)(settings, benchmark, gateway)
    return result


@asynccontextmanager
async def open_forwarder(gateway: str) -> AsyncIterator[str]:
    """Forward a local URL to the gateway within the block, and yield it. A gateway with a URL needs no forwarder."""
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
RELEASE_SECONDS = 0.1
"""Poll interval of an item that waits for its release."""


@dataclass(frozen=True)
class Job:
    """The content of an input folder: settings.json, skill.md, items.jsonl."""

    settings: RolloutSettings
    skill: str
    items: Sequence[PublicItem]

    @classmethod
    def read(cls, folder: Path) -> "Job":
        lines = (folder / "items.jsonl").read_bytes().splitlines()
        return cls(
            settings=RolloutSettings.model_validate_json((folder / "settings.json").read_bytes()),
            skill=(folder / "skill.md").read_bytes().decode(),
            items=[PublicItem.model_validate_json(line) for line in lines],
        )


async def run(in_folder: Path, out_folder: Path, gateway: str, corpus: Path = CORPUS) -> None:
    """Append one line per item to `out_folder`/trajectories.jsonl, flushed, in order of completion.

    With the setting `gives_up`, the remaining items are skipped if the first ones failed permanently.

    Args:
        in_folder: a `Job`; the files of item number n, counted from 0, are in `files/<n>`.
        out_folder: gets the target's files of item n in `files/<n>`; its world's files are in `sealed/<n>`.
        gateway: path of the model gateway's unix socket, or its URL `http://host:port`.
        corpus: folder of the documents that all items share, if the run has a corpus.
    """
    job = Job.read(in_folder)
    if mismatch := _program_mismatch(job.settings):
        _refuse(job, out_folder, mismatch)
        return
    sealed = take_sealed_files(out_folder / SEALED)
    benchmark = benchmarks.load(job.settings.benchmark, job.settings.task)
    documents = CorpusFolder(corpus)
    # CLIs don't support unix sockets.
    forwarder = open_forwarder(gateway) if HARNESSES[job.settings.harness].is_cli else nullcontext(gateway)
    slots = asyncio.Semaphore(job.settings.concurrency)
    finished: list[Trajectory] = []
    repository = Repository.open_copy()
    async with forwarder as url, aclosing(runner(job.settings, benchmark, url)) as harness:

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
            async with slots:
                await _wait_for_release(in_folder, index)
                if job.settings.gives_up and shared_lasting_failure(finished, len(job.items)):
                    return
                trajectory = await _trajectory(harness, item, job.skill, workspace)
            if web is not None and web.failure:
                # Without the search, the result isn't the target's.
                trajectory = trajectory.model_copy(
                    update={"status": Status.SANDBOX_ERROR, "error": storable(web.failure)}
                )
            finished.append(trajectory)
            out.write(_row(trajectory) + "\n")
            out.flush()

        with (out_folder / "trajectories.jsonl").open("a", encoding="utf-8") as out:
            async with asyncio.TaskGroup() as group:
                for index, item in enumerate(job.items):
                    group.create_task(work(index, item, out))


def _program_mismatch(settings: RolloutSettings) -> str:
    """Return an error if this program isn't the one under which the host stores the rollouts."""
    if not settings.image_program:
        return ""
    try:
        own = image_program(settings.benchmark, declared=settings.task is not None)
    except ConfigError as error:
        own = str(error)
    if own == settings.image_program:
        return ""
    return (
        f"the sandbox image has another rollout program or adapter.py than the worker ({own}, not "
        f"{settings.image_program}): run `make up` or `make image NAME=...`, and push the image if a registry has it"
    )


def _refuse(job: Job, out_folder: Path, why: str) -> None:
    rows = [Trajectory(item_id=item.id, status=Status.SANDBOX_ERROR, error=why).model_dump_json() for item in job.items]
    (out_folder / "trajectories.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


async def _wait_for_release(in_folder: Path, index: int) -> None:
    """Wait while the host's number of released items, if any, doesn't include this one."""
    released = in_folder / "released"
    while released.exists() and int(released.read_bytes()) <= index:
        await asyncio.sleep(RELEASE_SECONDS)


def _row(trajectory: Trajectory) -> str:
    """Return the trajectory as a line of JSON, or an error if JSON can't represent it."""
    try:
        return trajectory.model_dump_json()
    except PydanticSerializationError as error:
        why = f"The trajectory can't be written as JSON: {error}"[:500]
        return Trajectory(item_id=trajectory.item_id, status=Status.SANDBOX_ERROR, error=why).model_dump_json()


async def _trajectory(harness: Runner, item: PublicItem, skill: str, workspace: ItemFolders) -> Trajectory:
    try:
        Path(workspace.outputs).mkdir(parents=True, exist_ok=True)
        trajectory = await harness.run(item, skill, workspace)
        workspace.write_patch()
    except Exception as error:  # noqa: BLE001 - one broken item must not end the others; its row has the error
        text = f"{type(error).__name__}: {error}"[:500]
        return Trajectory(item_id=item.id, status=Status.SANDBOX_ERROR, error=text)
    return trajectory.model_copy(update={"files": output_files(workspace.outputs)})
