"""Broken data stop a training, a night and what is concluded from rollouts, with the rows named and nothing paid."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.budget import MODEL_ROLES, Role
from skillopt_airflow.core.values.types import DATA_SPLITS, Split
from skillopt_airflow.pipeline.tasks import triggered
from skillopt_airflow.pipeline.tasks.params import form
from skillopt_airflow.quality.quality_report import DataQualityError, QualityReport
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.data.item_tables import save_items
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys, RunKeys, night_name
from skillopt_airflow.store.tables.night_table import Contender, NightTable
from skillopt_airflow.training.champion.night_plan import Commands, prepare_night
from skillopt_airflow.training.prepare import preparation
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests import page_data
from tests.store.test_artifacts import provenance
from tests.training.in_process import PROJECT, InProcessConnections
from tests.training.local_store import LocalStore
from tests.training.served_training import connect

RUN, DATE, TARGET = "manual-1", "2026-11-20", "openai-chat:stand-in-target"
Records = list[dict[str, Any]]
Spoil = Callable[[Records], Any]


class Reached(InProcessConnections):
    """Whoever reaches a model or engine has got further than broken data may."""

    def image(self, config: TrainConfig, asked: Collection[Role] = MODEL_ROLES) -> str:
        raise AssertionError("a model or engine was asked")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """The bucket of runs."""
    connections = Reached()
    for role in ("target", "optimizer"):
        connect(monkeypatch, role, "http://127.0.0.1:1/v1", "key", f"stand-in-{role}")
    artifacts = ArtifactStore(connections.artifacts, ArtifactKeys("", "searchqa", TARGET))
    artifacts.publish("# Champion\n", provenance("training"), None)
    monkeypatch.setattr(triggered, "open_run", lambda ref: TrainingRun(ref, connections))
    return connections.store


def sample(split: Split) -> Records:
    path = PROJECT / "benchmarks" / "searchqa" / "sample" / split / "items.json"
    records: Records = json.loads(path.read_text(encoding="utf-8"))
    return records


def without(key: str) -> Spoil:
    return lambda records: records[2].pop(key)


def prepare(folder: Path, spoil: Spoil, **overrides: Any) -> None:
    for split in DATA_SPLITS:
        records = sample(split)[:8]
        if split is Split.VAL:
            spoil(records)
        (folder / split).mkdir()
        (folder / split / "items.json").write_text(json.dumps(records))
    fields = {name: field.value for name, field in form(benchmark_config("searchqa")).items()}
    chosen = {"data.uri": str(folder), "data.split_mode": "split_dir", **overrides}
    preparation.prepare_training(*triggered.new_run("searchqa", RUN, fields | {"overrides": chosen}))


def left(store: LocalStore, run: str, split: Split) -> QualityReport:
    """The result, after a look that nothing else of the run is there."""
    keys = RunKeys("", "searchqa", run)
    assert store.list_keys(keys.folder) == [keys.quality_page, keys.quality]
    assert f'<td class="keep">{split}</td>' in store.get_text(keys.quality_page)
    return store.get_model(keys.quality, QualityReport)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("id"), r"no usable id .* in val row 3 \(id None\)"),
        (lambda rows: rows[2].update(sample(Split.TRAIN)[4]), r"same id .*train row 5.* in val row 3"),
        (without("question"), r"question is missing, .* in val row 3 \(id "),
        (without("answers"), r"answers is missing or .* in val row 3 \(id "),
    ],
)
def test_broken_records_stop_a_training_and_only_the_result_is_left(
    store: LocalStore, tmp_path: Path, spoil: Spoil, said: str
) -> None:
    with pytest.raises(DataQualityError, match=rf"^data\.uri = {tmp_path}: .*{said}"):
        prepare(tmp_path, spoil)
    assert not left(store, RUN, Split.VAL).success


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"evaluation.test_limit": 50}, "split test, at least 50 needed for evaluation.test_limit = 50"),
        (
            {"evaluation.gate_policy": "exact_paired", "evaluation.gate_alpha": 0.001},
            "split val, at least 10 needed for evaluation.gate_policy = exact_paired",
        ),
    ],
)
def test_splits_that_are_too_small_for_the_configuration_stop_a_training(
    store: LocalStore, tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataQualityError, match=said):
        prepare(tmp_path, lambda rows: None, **overrides)
    keys = RunKeys("", "searchqa", RUN)
    assert store.list_keys(keys.folder) == [keys.quality_page, keys.quality]


def test_good_records_get_as_far_as_the_models_and_leave_nothing_before(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a model or engine was asked"):
        prepare(tmp_path, lambda rows: None, **{"evaluation.val_limit": 8})
    assert store.objects == {}


def fresh(folder: Path, spoil: Spoil, count: int = 30) -> None:
    """A night of items that are new, but for what is spoiled."""
    records = [record | {"id": f"new-{record['id']}"} for record in sample(Split.TEST)[:count]]
    changed = spoil(records)
    path = folder / f"date={DATE}" / "items.json"
    path.parent.mkdir()
    path.write_text(json.dumps(changed if isinstance(changed, list) else records))
    prepared(folder)


def prepared(folder: Path) -> Any:
    config = triggered.night_config("searchqa", {"target": None, "overrides": {"regate.fresh_uri": str(folder)}})
    ref = RunRef(benchmark="searchqa", run=night_name(DATE, TARGET), storage=config.storage)
    return prepare_night(triggered.open_run(ref), config, DATE, TARGET, Commands("publish_searchqa", {}))


def stretched(records: Records) -> Records:
    return [record | {"context": " ".join([record["context"]] * 3)} for record in records]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[2].update(id=sample(Split.VAL)[4]["id"]), r"the same id in fresh row 3 \(id "),
        (
            lambda rows: rows[2].update(sample(Split.TRAIN)[4] | {"id": "another", "answers": ["other"]}),
            r"looks the same .* in fresh row 3 \(id another\)$",
        ),
        (stretched, r"public\.context is much longer .* in fresh row 1 \(id new-"),
        (lambda rows: [record | {"answers": []} for record in rows], r"answers is empty in fresh row 1 \(id "),
    ],
    ids=["selected on", "trained on under another id", "lengths", "no references"],
)
def test_broken_items_stop_a_night_and_only_the_result_is_left(
    store: LocalStore, tmp_path: Path, spoil: Spoil, said: str
) -> None:
    with pytest.raises(DataQualityError, match=said):
        fresh(tmp_path, spoil)
    assert not left(store, night_name(DATE, TARGET), Split.FRESH).success


def test_an_item_of_another_night_stops_a_night(store: LocalStore, tmp_path: Path) -> None:
    measured = Evaluation(scores={f"new-{sample(Split.TEST)[7]['id']}": ItemScore(hard=1.0, soft=1.0)})
    champion = Contender(version="v0001-0123456789ab", sha256="a")
    [night] = page_data.nights("searchqa", TARGET, champion, None, 1)
    table = NightTable(store, RegateKeys("", "searchqa", TARGET))
    table.conclude(night, {"champion": measured, "seed": measured}, 0.5)
    with pytest.raises(DataQualityError, match=r"only once in fresh row 8 \(id new-"):
        fresh(tmp_path, lambda rows: None)


def test_a_night_without_items_says_how_to_do_it_when_they_have_come(store: LocalStore, tmp_path: Path) -> None:
    said = prepared(tmp_path)
    assert isinstance(said, str)
    assert said.startswith("no_data: ")
    assert f"backfill {DATE}" in said
    empty = tmp_path / f"date={DATE}" / "items.json"
    empty.parent.mkdir()
    empty.write_text("[]")
    assert prepared(tmp_path) == said


@pytest.mark.parametrize(("spoil", "count"), [(lambda rows: None, 30), (stretched, 9)])
def test_a_night_like_the_training_or_of_few_items_gets_as_far_as_the_models(
    store: LocalStore, tmp_path: Path, spoil: Spoil, count: int
) -> None:
    with pytest.raises(AssertionError, match="a model or engine was asked"):
        fresh(tmp_path, spoil, count)


def test_a_night_is_compared_with_what_the_previous_alias_trained_on_not_with_the_present_data(
    store: LocalStore, tmp_path: Path
) -> None:
    """The training, of which the champion's manifest tells, had the items of the sample's test split."""
    training = triggered.open_run(
        RunRef(benchmark="searchqa", run="training", storage=benchmark_config("searchqa").storage)
    )
    items = [benchmarks.load("searchqa").item(record) for record in sample(Split.TEST)]
    for split, part in zip(DATA_SPLITS, (items[:30], items[30:60], items[60:]), strict=True):
        save_items(store, training.keys.items(split), part)
    with pytest.raises(DataError, match=r"looks the same .* in fresh row 1 .* and 25 more rows$"):
        fresh(tmp_path, lambda rows: None)
