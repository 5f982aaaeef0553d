"""Rollouts are checked before a night is settled or a skill scored: broken ones are named and nothing is concluded."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.quality.quality_report import DataQualityError, QualityReport
from skillopt_airflow.store.keys import MatrixKeys
from skillopt_airflow.store.tables.parquet import TRAJECTORIES, from_parquet, to_parquet
from skillopt_airflow.training.champion.night_conclusion import conclude_night
from skillopt_airflow.training.run.run import TrainingRun
from tests.training.champion.test_nights import SEED, date, healthy, of_two_champions
from tests.training.in_process import configured
from tests.training.local_store import LocalStore
from tests.training.matrix_training import MatrixTraining, one_cell

Rows = list[dict[str, Any]]


def measured_night() -> TrainingRun:
    """A night whose rollouts are stored, and nothing concluded yet."""
    return of_two_champions().measured(date(1), healthy(1, 6))


def spoil(store: LocalStore, change: Callable[[Rows], Any], of: str = "") -> None:
    """Change the rows of the first part of the trajectory table, as a faulty writer would."""
    key = next(key for key in store.list_keys("trajectories/") if f"skill={of[:12]}" in key)
    rows = from_parquet(store.get_bytes(key)).to_pylist()
    change(rows)
    store.put_bytes(key, to_parquet(pa.Table.from_pylist(rows, schema=TRAJECTORIES)))


@pytest.mark.nightly
def test_a_night_that_is_as_it_should_be_shows_both_results_on_its_page() -> None:
    run = measured_night()
    conclude_night(run)
    found = run.store.get_model(run.keys.rollout_quality, QualityReport)
    assert found.success
    assert found.rows == {f"{role} skill, sample 0": 6 for role in ("champion", "seed", "previous")}
    page = run.store.get_text(run.keys.quality_page)
    assert "Records" in page
    assert "Rollouts" in page


def test_broken_rollouts_stop_a_night_before_it_is_settled() -> None:
    run = measured_night()
    spoil(run.store, lambda rows: rows[0].update(hard=1.5), SkillDocument(SEED).sha256)
    with pytest.raises(DataQualityError, match=r"^regate-\S+ on fresh: .*hard score.* in seed skill, sample 0 row "):
        conclude_night(run)
    assert run.store.list_keys("regate/") == []
    assert "failed, run stopped" in run.store.get_text(run.keys.quality_page)


def test_rows_that_are_no_fault_do_not_stop_a_night() -> None:
    """Parts that are being merged are there twice, and other runs store what they like."""
    run = measured_night()
    for key in run.store.list_keys("trajectories/"):
        run.store.put_bytes(key.replace("part-", "part-merged-"), run.store.get_bytes(key))
    spoil(run.store, lambda rows: rows[0].update(run="other", status="melted"))
    # A part may have a single row.
    spoil(run.store, lambda rows: rows[-1].update(run="other", item_id="zebra"))
    conclude_night(run)
    assert run.store.list_keys("regate/")


@pytest.mark.nightly
def test_broken_rollouts_stop_an_evaluation() -> None:
    training = MatrixTraining(configured("searchqa", {"evaluation.test_limit": 6}), name="evaluate-1")
    request = one_cell(skills=("seed",))
    assert training.matrix(request).cells[0].skills[0].items == 6
    spoil(training.store, lambda rows: rows[0].update(hard=2.0), training.run.skill(0).sha256)
    key = MatrixKeys("", "searchqa").matrix("evaluate-1")
    training.store.delete(key)
    with pytest.raises(DataQualityError, match=r"^evaluate-1 on test: .* in .*, test, seed \S+ skill, sample 0 row \d"):
        training.matrix(request)
    assert not training.store.exists(key)
