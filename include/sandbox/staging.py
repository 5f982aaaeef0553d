"""The folders that a container sees: /in with its work, /out for its trajectories, /gateway with the socket."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from include.sandbox.workload import Workload

PREFIX = "skillopt-"
SANDBOX_UID = 10001
MAX_SOCKET_CHARS = 100


@dataclass(frozen=True)
class Stage:
    """The host's side of the folders."""

    folder: Path

    @property
    def inputs(self) -> Path:
        """settings.json, skill.md and items.jsonl; read-only in the container."""
        return self.folder / "in"

    @property
    def outputs(self) -> Path:
        """Where the container writes."""
        return self.folder / "out"

    @property
    def gateway(self) -> Path:
        """Holds the socket; read-only in the container, which forbids making files, not connecting."""
        return self.folder / "gateway"

    @property
    def socket(self) -> Path:
        """The model gateway's socket."""
        return self.gateway / "model.sock"

    @property
    def allowance(self) -> Path:
        """How many items a paced program may begin."""
        return self.gateway / "allowance"

    @property
    def trajectories(self) -> Path:
        """The file that the program appends to."""
        return self.outputs / "trajectories.jsonl"


@contextmanager
def staged(workload: Workload) -> Iterator[Stage]:
    """The folders of one attempt, filled; gone afterwards."""
    stage = Stage(Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder())))
    try:
        for folder in (stage.inputs, stage.outputs, stage.gateway):
            folder.mkdir()
            folder.chmod(0o755)
        write_inputs(workload, stage.inputs)
        if workload.pace is not None:
            allow(stage, workload.pace)
        # Whichever user the container has may write here; on the host the parent folder lets nobody else in.
        stage.outputs.chmod(0o777)
        yield stage
    finally:
        remove(stage.folder)


def allow(stage: Stage, items: int) -> None:
    """Let a paced program begin its first `items` items; it sees the former number or this one, never a part."""
    path = stage.allowance.with_suffix(".new")
    path.write_text(str(items), encoding="ascii")
    path.chmod(0o644)
    path.replace(stage.allowance)


def write_inputs(workload: Workload, folder: Path) -> None:
    """Write what the program reads; of an item only its id and its public part."""
    lines = [json.dumps({"id": item.id, "public": item.public}) + "\n" for item in workload.items]
    settings = workload.settings.model_copy(update={"paced": workload.pace is not None})
    contents = {
        "settings.json": settings.model_dump_json(),
        "skill.md": workload.skill,
        "items.jsonl": "".join(lines),
    }
    for name, content in contents.items():
        path = folder / name
        path.write_text(content, encoding="utf-8", newline="")
        path.chmod(0o644)


def remove(folder: Path) -> None:
    """Remove a stage, if it is one and still there."""
    if folder.name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def container_user() -> str:
    """Never root; the worker's own user otherwise, so that it can remove what the container leaves behind."""
    uid, gid = os.getuid(), os.getgid()
    return f"{SANDBOX_UID}:{SANDBOX_UID}" if uid == 0 else f"{uid}:{gid}"


def _short_folder() -> str | None:
    """A socket's path has at most 107 bytes."""
    usual = tempfile.gettempdir()
    longest = len(os.fsencode(usual)) + len("/skillopt-12345678/gateway/model.sock")
    return usual if longest <= MAX_SOCKET_CHARS else "/tmp"  # noqa: S108
