"""The commands of README and docs/, run as they stand there against a running platform; first_run.md's first."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from airflow.cli.cli_parser import get_parser
from command_blocks import BLOCKS, PROJECT, Block, typed
from shared_resource import alone

from local.airflow_api import REQUEST_SECONDS
from local.environment import airflow_url
from local.shell_commands import command_environment
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.run.run_record import RunRecord
from tests.pipeline.trained_run import DAG, set_paused, token, wait_for_task
from tests.store.test_artifacts import provenance

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

REGATE = "regate_searchqa"
SCHEDULED = (REGATE, "skillopt_cleanup")
SECONDS = 300


@pytest.fixture(scope="module")
def folder(platform: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the one that the pages' commands are typed in, with the state of the tests' platform."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".local").symlink_to(platform.home.root)
    (folder / "include").symlink_to(PROJECT / "include")
    return folder


@pytest.fixture(scope="module")
def airflow(platform: Any) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {token(platform)}"}
    for dag in (DAG, *SCHEDULED):
        platform.api.wait_for_dag(dag)
    address = f"{airflow_url(platform.settings)}/api/v2"
    with httpx.Client(base_url=address, headers=headers, timeout=REQUEST_SECONDS) as client:
        yield client


def first_run(beginning: str) -> Block:
    """The only block of docs/first_run.md that begins so."""
    [block] = [block for block in BLOCKS if block.page == "docs/first_run.md" and block.text.startswith(beginning)]
    return block


TRIGGER = first_run('.local/bin/airflow dags trigger train_searchqa --conf \'{"train.num_epochs"')
UNPAUSE = first_run(".local/bin/airflow dags unpause")
BACKFILL = first_run(".local/bin/airflow backfill create")
FETCH = first_run(".local/bin/python include/skillopt_airflow/consumer.py fetch")
OWN_TESTS = {block.text for block in (TRIGGER, UNPAUSE, BACKFILL, FETCH)}
OTHERS = [block for block in BLOCKS if block.is_run and block.text not in OWN_TESTS]
UNPAUSES, TRIGGERS, BACKFILLS = "airflow dags unpause", "airflow dags trigger", "airflow backfill create"


def asked(command: str) -> Any:
    """What Airflow's own parser makes of a command."""
    return get_parser().parse_args(shlex.split(command)[1:])


def test_trigger(platform: Any, airflow: httpx.Client, folder: Path) -> None:
    [run_id] = [row["dag_run_id"] for row in triggered(platform, lambda block: typed(block.text, folder), TRIGGER)]
    try:
        wait_for_task(platform, DAG, run_id, "prepare", "success")
        record = ObjectStore(platform.s3, "skillopt").get_model(
            RunKeys("", "searchqa", run_name(run_id)).config, RunRecord
        )
        assert (record.config.train.num_epochs, record.config.publishing.approval) == (2, True)
    finally:
        end(airflow, DAG, run_id)


def test_every_night(platform: Any, airflow: httpx.Client, in_one_process: Callable[[Block], None]) -> None:
    unpause(platform, airflow, in_one_process, UNPAUSE)


def test_backfill(platform: Any, airflow: httpx.Client, in_one_process: Callable[[Block], None]) -> None:
    conf = json.loads(asked(BACKFILL.text).dag_run_conf)
    set_paused(platform, REGATE, paused=False)
    create_backfill(platform, airflow, in_one_process, BACKFILL)
    deadline = time.monotonic() + SECONDS
    while True:
        nights = {row["dag_run_id"]: row["state"] for row in platform.api.runs(REGATE) if row["conf"] == conf}
        if len(nights) == 7 and set(nights.values()) == {"success"}:
            break
        assert time.monotonic() < deadline, nights
        time.sleep(1)
    # There are no such items: a night without any is skipped, and says where they were expected.
    for night in nights:
        assert {row["state"] for row in platform.api.task_instances(REGATE, night)} == {"skipped"}
        log = "\n".join(platform.api.log(REGATE, night, "prepare_night", 1))
        assert "no_data: " in log


def test_deploy(platform: Any, folder: Path) -> None:
    words = shlex.split(FETCH.text)
    target = words[words.index("--target") + 1]
    store = ObjectStore(platform.s3, words[words.index("--bucket") + 1])
    artifacts = ArtifactStore(store, ArtifactKeys("", "searchqa", target))
    artifacts.publish("# Answer briefly\n", provenance("earlier"), artifacts.champion.read())
    typed(FETCH.text, folder)
    fetched = folder / words[words.index("--out") + 1]
    assert (fetched / "best_skill.md").read_text(encoding="utf-8") == "# Answer briefly\n"


def test_the_other_commands_reach_airflow_as_they_are_meant(
    platform: Any, airflow: httpx.Client, in_one_process: Callable[[Block], None]
) -> None:
    """What their runs do is in the tests of the DAGs: here they are ended as soon as they are seen."""
    kinds = {kind: [block for block in OTHERS if kind in block.text] for kind in (UNPAUSES, TRIGGERS, BACKFILLS)}
    assert sum(map(len, kinds.values())) == len(OTHERS)
    for dag in {asked(command).dag_id for block in OTHERS for command in block.commands}:
        platform.api.wait_for_dag(dag)
    for block in kinds[UNPAUSES]:
        unpause(platform, airflow, in_one_process, block)
    for block in kinds[TRIGGERS]:
        for row in triggered(platform, in_one_process, block):
            end(airflow, row["dag_id"], row["dag_run_id"])
    for block in kinds[BACKFILLS]:
        made, [wanted] = create_backfill(platform, airflow, in_one_process, block), map(asked, block.commands)
        airflow.put(f"/backfills/{made['id']}/cancel").raise_for_status()
        assert (made["from_date"][:10], made["to_date"][:10]) == (f"{wanted.from_date:%F}", f"{wanted.to_date:%F}")
        # Without a configuration Airflow stores either of the two.
        assert (made["dag_run_conf"] or {}) == json.loads(wanted.dag_run_conf or "{}")


def end(airflow: httpx.Client, dag: str, run_id: str) -> None:
    """Mark a run as failed.

    Airflow changes the tasks and the run without locks: where its scheduler writes the same rows at that moment, the
    database ends one of the two, which is 500 here, and nothing is changed.
    """
    deadline = time.monotonic() + SECONDS
    while True:
        answer = airflow.patch(f"/dags/{dag}/dagRuns/{run_id}", json={"state": "failed"})
        if answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR or time.monotonic() >= deadline:
            answer.raise_for_status()
            return
        time.sleep(1)


@pytest.fixture(scope="module")
def in_one_process(platform: Any) -> Iterator[Callable[[Block], None]]:
    """Blocks of Airflow's commands, of which the shell would start each in a process that imports all of Airflow."""
    program = subprocess.Popen(
        [sys.executable, "-P", str(PROJECT / "tests" / "airflow_commands.py")],
        # To compare the database with the migrations takes seconds.
        env=command_environment(platform.home, "airflow", {}) | {"AIRFLOW__DATABASE__CHECK_MIGRATIONS": "False"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdin is not None
        assert program.stdout is not None

        def run(block: Block) -> None:
            for command in block.commands:
                program.stdin.write(f"{command}\n")
                program.stdin.flush()
                assert program.stdout.readline() == "0\n", command

        yield run
        program.stdin.close()


def unpause(platform: Any, airflow: httpx.Client, run: Callable[[Block], None], block: Block) -> None:
    named = [asked(command).dag_id for command in block.commands]
    for dag in named:
        set_paused(platform, dag, paused=True)
    run(block)
    assert {dag: airflow.get(f"/dags/{dag}").json()["is_paused"] for dag in named} == dict.fromkeys(named, False)
    # What is due by its schedule would run now.
    for dag in named:
        set_paused(platform, dag, paused=True)


def triggered(platform: Any, run: Callable[[Block], None], block: Block) -> list[dict[str, Any]]:
    """Run a block; return the run of each of its commands, which others' runs on the platform do not resemble."""
    wanted = [asked(command) for command in block.commands]
    dags = {one.dag_id for one in wanted}
    before = {(dag, row["dag_run_id"]) for dag in dags for row in platform.api.runs(dag)}
    run(block)
    begun = [row for dag in dags for row in platform.api.runs(dag) if (dag, row["dag_run_id"]) not in before]
    found = []
    for one in wanted:
        conf = json.loads(one.conf or "{}")
        alike = [row for row in begun if row["dag_id"] == one.dag_id and row["conf"].items() >= conf.items()]
        by_hand = [row for row in alike if row["dag_run_id"].startswith("manual__")]
        assert by_hand, (one.dag_id, conf, begun)
        # The conf of one command may be a part of another one's.
        nearest = min(by_hand, key=lambda row: len(row["conf"]))
        found.append(nearest)
        begun.remove(nearest)
    return found


def create_backfill(platform: Any, airflow: httpx.Client, run: Callable[[Block], None], block: Block) -> dict[str, Any]:
    """Run the block once no other backfill of the DAG is under way; return the backfill that it made."""

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = airflow.get("/backfills", params={"dag_id": REGATE}).json()["backfills"]
        return found

    deadline = time.monotonic() + SECONDS
    with alone(platform.home.root):
        while any(one["completed_at"] is None for one in listed()):
            assert time.monotonic() < deadline
            time.sleep(1)
        run(block)
        return max(listed(), key=lambda one: int(one["id"]))
