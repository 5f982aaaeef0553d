"""Nights that an outage swallowed: the next one names their dates and the backfill that brings them."""

import json
import logging
import shlex
from collections.abc import Collection
from pathlib import Path

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.timetables.interval import CronDataIntervalTimetable

from skillopt_airflow.core.budget import MEASURING, Role
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Split
from skillopt_airflow.pipeline.triggered import night_date
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import RegateKeys, RunKeys
from skillopt_airflow.training.lost_nights import backfill_of
from skillopt_airflow.training.night import LedgerRow, settle_night
from skillopt_airflow.training.night_plan import Commands, Contest, contest_of, prepare_night
from tests.training.in_process import Training, configured
from tests.training.test_nights import CHAMPION, FORMER, TARGET, Nights, healthy

BACKFILL = (
    "airflow backfill create --dag-id regate_searchqa --from-date {}T00:00:00{} --to-date {}T23:59:59{} "
    "--max-active-runs 1 --reprocess-behavior completed --dag-run-conf '{}'"
)


def backfill(first: str, last: str, *offsets: str, conf: str = "{}") -> str:
    begin, end = offsets or ("+00:00", "+00:00")
    return BACKFILL.format(first, begin, last, end, conf)


def config(**overrides: str) -> TrainConfig:
    return configured("searchqa", {key.replace("__", "."): value for key, value in overrides.items()})


def test_the_command_is_airflows() -> None:
    dates = ["2026-11-03", "2026-11-05"]
    assert backfill_of("regate_searchqa", dates, config(), TARGET, {}) == backfill(*dates)
    other = backfill_of("regate_searchqa", dates, config(model__target="openai-chat:new"), TARGET, {})
    assert other == backfill(*dates, conf='{"target": "openai-chat:new"}')
    elsewhere = {"model.target_conn_id": "new_model", "storage.prefix": "team's/"}
    command = backfill_of("regate_searchqa", dates, config(model__target="azure:new"), TARGET, elsewhere)
    assert json.loads(shlex.split(command)[-1]) == {"target": "azure:new", "overrides": elsewhere}
    # A night's own target wins over that of its overrides.
    command = backfill_of("regate_searchqa", dates, config(), TARGET, elsewhere | {"model.target": "azure:new"})
    assert json.loads(shlex.split(command)[-1]) == {"overrides": elsewhere}


def test_in_another_time_zone_the_days_are_those_there() -> None:
    berlin = config(regate__timezone="Europe/Berlin")
    found = backfill_of("regate_searchqa", ["2026-10-25", "2026-10-26"], berlin, TARGET, {})
    # The clocks changed on the first of these days.
    assert found == backfill("2026-10-25", "2026-10-26", "+02:00", "+01:00")


@pytest.mark.parametrize("dates", [["2026-10-24", "2026-10-25", "2026-10-26"], ["2026-11-05"]])
@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("schedule", ["@daily", "0 2 * * *", "30 23 * * *"])
def test_at_whatever_hour_nights_begin_the_command_brings_all_of_them_and_no_other(
    schedule: str, timezone: str, dates: list[str]
) -> None:
    wanted = config(regate__schedule=schedule, regate__timezone=timezone)
    command = backfill_of("regate_searchqa", dates, wanted, TARGET, {})
    asked = get_parser().parse_args(shlex.split(command)[1:])
    timetable = CronDataIntervalTimetable(schedule, timezone)
    dag = SerializedDAG(dag_id="regate_searchqa")
    dag.timetable = timetable
    runs = dag.iter_dagrun_infos_between(asked.from_date, asked.to_date)
    assert [night_date(run.data_interval.start, wanted) for run in runs] == dates


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd"])
def test_a_time_zone_that_there_is_not_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"regate\.timezone.*no time zone is called"):
        config(regate__timezone=name)


@pytest.mark.slow
def test_the_night_after_an_outage_names_those_whose_items_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nights = Nights()
    for text in (FORMER, CHAMPION):
        nights.publish(text)
    for day in (1, 2, 3, 4, 6):
        folder = tmp_path / f"date=2026-11-0{day}"
        folder.mkdir()
        (folder / "items.json").write_text(json.dumps(healthy(day)))

    checked: list[Collection[Role]] = []

    def night(day: int) -> LedgerRow:
        date = f"2026-11-0{day}"
        training = Training(
            config(model__target=TARGET, regate__fresh_uri=str(tmp_path)), name=f"regate-{date}", store=nights.store
        )
        training.models.artifacts = nights.store
        # On day 2 no night begins, though there are items.
        earlier = [f"2026-11-0{one}" for one in range(day - 1, 0, -1) if one != 2]
        commands = Commands("regate_searchqa", "publish_searchqa", {"regate.fresh_uri": str(tmp_path)})
        plan = prepare_night(training.run, training.config, date, TARGET, 1000, commands, earlier)
        assert isinstance(plan, list), plan
        checked.extend(training.models.checked)
        training.run_containers(plan)
        return settle_night(training.run)

    with caplog.at_level(logging.WARNING, "skillopt_airflow.training.night_plan"):
        assert night(1).lost == ()
        assert not caplog.records
        # Day 5 had no items.
        assert night(6).lost == ("2026-11-03", "2026-11-04")
    conf = json.dumps({"overrides": {"regate.fresh_uri": str(tmp_path)}})
    assert backfill("2026-11-03", "2026-11-04", conf=conf) in caplog.text
    assert night(3).lost == ()
    items, stored = tmp_path / "date=2026-11-06" / "items.json", RunKeys("", "searchqa", "regate-2026-11-06")
    before = nights.store.get_bytes(stored.items(Split.FRESH))
    items.write_text(json.dumps(healthy(7)))
    assert night(6).lost == ("2026-11-04",)
    items.unlink()
    assert night(6).lost == ("2026-11-04",)
    assert nights.store.get_bytes(stored.items(Split.FRESH)) == before
    # Night 6 was settled before.
    assert checked == [MEASURING, MEASURING, MEASURING]
    kept = nights.store.get_model(RegateKeys("", "searchqa", TARGET).report("2026-11-06"), LedgerRow)
    assert kept.lost == ("2026-11-04",)


def test_documents_of_before_have_none() -> None:
    contest = contest_of("2026-11-01", _published(), SkillDocument("# Seed\n"))
    assert "lost" not in contest.model_dump()
    assert Contest.model_validate(contest.model_dump()).lost == ()


def _published() -> ArtifactStore:
    nights = Nights()
    nights.publish(FORMER)
    return nights.artifacts
