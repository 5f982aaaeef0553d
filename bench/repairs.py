"""Ten instances of SWE-bench at two containers: seconds, memory, and what stays on the engine's disk."""

import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import docker

from bench import tables
from bench.container_memory import MEGABYTE, POLL_SECONDS, PeakMemory
from bench.real_data import ABSENT, REAL_DATA
from bench.repeated_looks import looking
from local import engine, image
from local.home import PROJECT
from local.served import served
from local.standin import chat_wire
from local.standin.conversation import Call, Conversation, Reply
from local.standin.server import Endpoint, StandInServer
from local.try_benchmark import configured, opened_sandbox, s3_client
from local.try_display import TryDisplay
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import Split
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.sandbox.container_loop import run_workload
from skillopt_airflow.sandbox.item_images import remove_unused
from skillopt_airflow.store.files import DataFiles
from skillopt_airflow.training.trial import Trial, Tried, first_items, skill_of

NAME = "swebench"
PREPARE = REAL_DATA / NAME / "runnable" / "prepare.py"
AT_ONCE = 2
MEMORY = "2g"
NOTE = (
    f"The runnable instances of SWE-bench Lite's development split, harness tools, {AT_ONCE} rollouts at a time. In "
    "the place of a model a server answers at once with the calls of a target that knows the solution: it looks at "
    "the repository, applies the recorded patch and hands in. What is measured is therefore everything but a model: "
    "the image of each instance (packages from PyPI, built once), a container for the target, and a second one for "
    "its tests. Memory is that of all containers together, as their "
    "control groups count it; disk is the size of all layers on the engine, above that of the sandbox images."
)


class KnowsTheSolution(StandInServer):
    """Answers chat completions as a target that applies the patch of the issue that it is asked about."""

    def __init__(self, patches: dict[str, str]) -> None:
        """Take the patches by the texts of their issues."""
        super().__init__("127.0.0.1", 0)
        self.endpoints = {"/v1/chat/completions": Endpoint(self._complete)}
        self._patches = patches

    def _complete(self, request: dict[str, Any]) -> dict[str, Any]:
        conversation = chat_wire.read(request)
        return chat_wire.answer(conversation, self._reply(conversation))

    def _reply(self, conversation: Conversation) -> Reply:
        asked = "\n".join(turn.text for turn in conversation.turns if turn.role == "user")
        patch = next((patch for issue, patch in self._patches.items() if issue in asked), "")
        done = sum(turn.role == "tool" for turn in conversation.turns)
        calls = (
            Call("shell", json.dumps({"command": "git log --oneline; ls"})),
            Call("shell", json.dumps({"command": f"printf %s {shlex.quote(patch)} | git apply -"})),
            Call("submit", "{}"),
        )
        return Reply(calls=(calls[done],)) if done < len(calls) else Reply("Resolved.")


def measure() -> None:
    """Have the instances repaired and judged, and write the table."""
    if not PREPARE.is_file():
        raise DataError(f"{PREPARE} is missing: {ABSENT}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(PREPARE), folder], check=True, stdout=subprocess.DEVNULL)
        _as_training_split(Path(folder))
        _measure(Path(folder))


def _as_training_split(folder: Path) -> None:
    """Write all instances as rows of the training split, and one to each of the others."""
    from benchmarks.swebench.instance_folder import row, write_rows

    rows = [row(path.parent, folder) for path in sorted(folder.glob("*/instance.json"))]
    for split in Split:
        write_rows(folder / split, rows if split is Split.TRAIN else rows[:1])


def _measure(folder: Path) -> None:
    home = PROJECT / ".local"
    docker_host = engine.ensure(home, print)
    image.ensure(home, docker_host, print, ["sandbox"])
    config = configured(
        NAME,
        [f"data.uri={folder}", f"model.concurrency={AT_ONCE}", f"sandbox.memory={MEMORY}", "sandbox.output_mb=512"],
    )
    adapter = benchmarks.load(NAME)
    items = first_items(NAME, adapter, config, Split.TRAIN, 1000, s3_client(config))
    rows = json.loads((folder / "train" / "items.json").read_bytes())
    done: list[Tried] = []
    stopped = threading.Event()
    server = KnowsTheSolution({row["problem_statement"]: row["patch"] for row in rows})
    with served(server) as model, closing(docker.DockerClient(base_url=docker_host, timeout=600)) as client:
        remove_unused(client.api, days=0)
        trial = Trial(
            benchmark=NAME,
            adapter=adapter,
            config=config,
            skill=skill_of(NAME, None),
            items=items,
            upstream=Upstream(conn_id="bench", dialect="openai-chat", base_url=model.base_url, model="solution"),
            data=DataFiles.of(config.data, benchmarks.folder(NAME), s3_client(config)),
            labels={"store": str(home), "dag_run": "bench"},
            on_row=done.append,
        )
        before, first = _layers(client), 0.0
        walls = []
        peak = PeakMemory(client)
        with looking(peak.look, POLL_SECONDS):
            for _ in ("images are built", "images are there"):
                began = time.monotonic()
                run_workload(trial, lambda place: opened_sandbox(home, trial, place, stopped, TryDisplay()), stopped)
                walls.append(time.monotonic() - began)
                first = first or _layers(client)
        remove_unused(client.api, days=0)
        _write(done, walls, peak.megabytes, (first - before, _layers(client) - before))


def _layers(client: docker.DockerClient) -> float:
    """Return the megabytes of all layers on the engine."""
    return float(client.df()["LayersSize"]) / MEGABYTE


def _write(done: list[Tried], walls: list[float], megabytes: float, disk: tuple[float, float]) -> None:
    count = len(done) // len(walls)
    rows = [
        ("instances", count),
        (
            "of them resolved, with images built and again",
            sum(one.score is not None and one.score.hard == 1.0 for one in done),
        ),
        ("wall with the images built, seconds", f"{walls[0]:.0f}"),
        ("wall again, seconds", f"{walls[1]:.0f}"),
        ("wall again / instances", f"{walls[1] / count:.1f}"),
        ("peak memory of all containers, MB", f"{megabytes:.0f}"),
        ("disk of the instances' images, MB", f"{disk[0]:.0f}"),
        ("of it after the cleanup, MB", f"{disk[1]:.0f}"),
    ]
    tables.write("repairs", "Instances of SWE-bench", NOTE, ("figure", ""), rows)
