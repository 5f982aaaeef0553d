"""Thirty nights as DagRuns of a backfill: a champion is kept until the world changes, then demoted."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
import pytest

from local.environment import airflow_url
from local.standin.economy import HARMFUL, RULES, Nature, World
from skillopt_airflow.core.gate.night_verdict import NightVerdict
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.night_table import NightTable
from skillopt_airflow.training.champion.night_conclusion import LedgerRow
from tests.page_data import ledger
from tests.pipeline.trained_run import set_paused, token, wait_for_task
from tests.store.test_artifacts import provenance
from tests.training.champion.test_nights import date, sample
from tests.training.in_process import PROJECT

SECONDS = 3600
pytestmark = [pytest.mark.nights, pytest.mark.timeout(SECONDS)]

FORMER = f"# Former\n\n- {RULES[0]}\n"
CHAMPION = FORMER + f"- {RULES[1]}\n- {HARMFUL[0]}\n"
BOTH_RIGHT, CHAMPION_RIGHT, FORMER_RIGHT = Nature(rule=RULES[0]), Nature(rule=RULES[1]), Nature(harmful=HARMFUL[0])
HEALTHY = [*4 * [BOTH_RIGHT], CHAMPION_RIGHT]
CHANGED = [BOTH_RIGHT, FORMER_RIGHT, FORMER_RIGHT]
"""The items of a night, in turn: after the change, the champion's harmful sentence spoils two thirds of them."""
ITEMS = 30
FRESH = PROJECT / "benchmarks/searchqa/sample/fresh"
"""The usual place of fresh items, where the stand-in finds their answers, too."""

BENCHMARK, DAG, ROLLBACK = "searchqa", "regate_searchqa", "rollback_searchqa"
NIGHTS, CHANGE = 30, 12
ALPHA = 0.05


@dataclass
class Month:
    """A champion in a part of the bucket of its own, and its nights."""

    platform: Any
    prefix: str = field(default_factory=lambda: f"month-{time.time_ns()}/")
    action: str = "rollback"

    def __post_init__(self) -> None:
        for text in (FORMER, CHAMPION):
            self.artifacts.publish(text, provenance("trained"), self.artifacts.champion.read())

    @property
    def target(self) -> str:
        extra = json.loads(self.platform.environment["AIRFLOW_CONN_SKILLOPT_TARGET"])["extra"]
        return str((json.loads(extra) if isinstance(extra, str) else extra)["model"])

    @property
    def artifacts(self) -> ArtifactStore:
        store = ObjectStore(self.platform.s3, "skillopt-artifacts")
        return ArtifactStore(store, ArtifactKeys(self.prefix, BENCHMARK, self.target))

    def backfill(self, first: int, last: int) -> dict[str, dict[str, Any]]:
        """As the docs have it; the runs by date once all of them have ended."""
        conf = {"target": None, "overrides": {"regate.on_demote": self.action, "storage.prefix": self.prefix}}
        self.platform.api.wait_for_dag(DAG)
        # A DAG with a schedule waits for that, and so do its backfills.
        set_paused(self.platform, DAG, paused=False)
        self._wait_for_earlier_backfills()
        days = ["--from-date", date(first), "--to-date", date(last)]
        one_by_one = ["--max-active-runs", "1"]
        command = ["backfill", "create", "--dag-id", DAG, *days, *one_by_one, "--dag-run-conf", json.dumps(conf)]
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *command],
            env=self.platform.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return self._wait({date(day) for day in range(first, last + 1)}, conf)

    def ledger(self) -> list[LedgerRow]:
        keys = RegateKeys(self.prefix, BENCHMARK, self.target)
        return ledger(NightTable(ObjectStore(self.platform.s3, "skillopt"), keys).all(), ALPHA)

    def _wait_for_earlier_backfills(self) -> None:
        """A DAG has one at a time, and the scheduler closes it a while after its last run."""
        headers = {"Authorization": f"Bearer {token(self.platform)}"}
        url, deadline = f"{airflow_url(self.platform.settings)}/api/v2/backfills", time.monotonic() + SECONDS
        while True:
            answer = httpx.get(url, headers=headers, params={"dag_id": DAG}, timeout=60).raise_for_status()
            if all(one["completed_at"] for one in answer.json()["backfills"]):
                return
            assert time.monotonic() < deadline
            time.sleep(1)

    def _wait(self, dates: set[str], conf: dict[str, Any]) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            runs = {
                run["logical_date"][:10]: run
                for run in self.platform.api.runs(DAG)
                if run["logical_date"] and run["logical_date"][:10] in dates and run["conf"] == conf
            }
            if set(runs) == dates and all(run["state"] in ("success", "failed") for run in runs.values()):
                assert {run["state"] for run in runs.values()} == {"success"}
                return runs
            time.sleep(1)
        raise AssertionError(f"the nights did not end: {sorted((day, run['state']) for day, run in runs.items())}")


@pytest.fixture(scope="module", autouse=True)
def fresh_items() -> Iterator[None]:
    yield
    shutil.rmtree(FRESH)


def add_night(day: int, natures: list[Nature]) -> None:
    """Write the fresh items of a night; the world of the stand-in knows an item by its id."""
    records, world = sample(), World()
    ids = (f"{day}-{number}" for number in count())
    items = []
    for number in range(ITEMS):
        nature = natures[number % len(natures)]
        record = records[number % len(records)]
        items.append(
            record
            | {
                "id": next(one for one in ids if world.nature(one) == nature),
                # The sample is small, and no item may come twice.
                "context": f"{record['context']} [DOC] [TLE] Day {day} [PAR] No. {number}.",
            }
        )
    path = FRESH / f"date={date(day)}" / "items.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(items), encoding="utf-8")


def month_of(platform: Any, days: range, world: Callable[[int], list[Nature]], action: str = "rollback") -> Month:
    for day in days:
        add_night(day, world(day))
    return Month(platform, action=action)


@pytest.fixture(scope="module")
def month(platform: Any) -> Month:
    """Thirty nights in which the world changes on the twelfth."""
    month = month_of(platform, range(1, NIGHTS + 1), lambda day: HEALTHY if day < CHANGE else CHANGED)
    month.backfill(1, NIGHTS)
    return month


def test_a_champion_that_got_worse_is_demoted_with_the_night_and_the_evidence(month: Month) -> None:
    rows = month.ledger()
    assert [row.night.date for row in rows] == [date(day) for day in range(1, NIGHTS + 1)]
    former, champion = sorted({row.night.champion.version for row in rows})
    before = [row for row in rows if row.night.date < date(CHANGE)]
    assert {row.judgement.verdict for row in before[4:]} == {NightVerdict.HEALTHY}
    demoted = [row for row in rows if row.judgement.verdict is NightVerdict.REGRESSED]
    assert len(demoted) == 1
    assert date(CHANGE) <= demoted[0].night.date <= date(CHANGE + 5)
    assert demoted[0].night.champion.version == champion
    after = [row for row in rows if row.night.date > demoted[0].night.date]
    assert {row.night.champion.version for row in after} == {former}
    alias = month.artifacts.champion.read()
    assert alias is not None
    assert alias.version == former
    assert alias.reason == f"demoted on {demoted[0].night.date}: {demoted[0].judgement.reason}"


def test_a_healthy_champion_is_kept_on_all_nights(platform: Any) -> None:
    # A month of its own: a DAG has one run a night.
    days = range(NIGHTS + 1, 2 * NIGHTS + 1)
    month = month_of(platform, days, lambda _: HEALTHY)
    champion = month.artifacts.champion.read()
    month.backfill(days[0], days[-1])
    rows = month.ledger()
    assert [row.night.date for row in rows] == [date(day) for day in days]
    assert {row.judgement.verdict for row in rows[4:]} == {NightVerdict.HEALTHY}
    assert month.artifacts.champion.read() == champion


def test_a_demotion_that_wants_an_approval_is_a_rollback_of_its_own(platform: Any) -> None:
    days = range(2 * NIGHTS + 1, 2 * NIGHTS + 13)
    month = month_of(platform, days, lambda _: CHANGED, action="ask")
    before = month.artifacts.champion.read()
    assert before is not None
    for day in days:
        month.backfill(day, day)
        row = month.ledger()[-1]
        if row.judgement.verdict is NightVerdict.REGRESSED:
            break
    assert month.artifacts.champion.read() == before
    # The night is over; who has to approve finds a DAG run that waits.
    mine = f"demote__{before.version}-{before.sequence}-"
    (asked,) = (run["dag_run_id"] for run in platform.api.runs(ROLLBACK) if run["dag_run_id"].startswith(mine))
    wait_for_task(platform, ROLLBACK, asked, "approve", "awaiting_input")
    task = f"/dags/{ROLLBACK}/dagRuns/{asked}/taskInstances/approve/-1"

    def approve_if_asked(_: Any) -> None:
        """Airflow asks again after an answer that comes before its scheduler has heard that the task waits."""
        states = {row["task_id"]: row["state"] for row in platform.api.task_instances(ROLLBACK, asked)}
        if states["approve"] == "awaiting_input":
            platform.api.request("PATCH", f"{task}/hitlDetails", json={"chosen_options": ["Approve"]})

    assert platform.api.wait(ROLLBACK, asked, approve_if_asked, seconds=120) == "success"
    alias = month.artifacts.champion.read()
    assert alias is not None
    assert row.night.previous is not None
    assert alias.version == row.night.previous.version
    assert alias.reason == f"demoted on {row.night.date}: {row.judgement.reason}"
