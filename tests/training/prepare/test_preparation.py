"""What a run settles before its first call, and what it keeps when it is prepared again."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.gate.run_gates import Question, item_mark
from skillopt_airflow.core.run.budget import MEASURING_ROLES, ModelPrice
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.champion.night_conclusion import conclude_night
from skillopt_airflow.training.champion.night_plan import Commands, prepare_night
from skillopt_airflow.training.prepare.preparation import prepare_training
from skillopt_airflow.training.report.matrix import prepare_matrix
from skillopt_airflow.training.run.run_record import RunRecord
from tests.training.champion.test_nights import CHAMPION, TARGET, Nights, healthy
from tests.training.in_process import Training, configured
from tests.training.matrix_training import one_cell

pytestmark = pytest.mark.slow

MONDAY = "2026-11-23T22:00:00+00:00"
THEN = ModelPrice(input=1.0, output=2.0, source="the table of Monday")
DATE = "2026-11-23"
JUDGE = "openai-chat:judge"
PRICED = {TARGET: {"input": 1.0, "output": 2.0}}
QUESTION = Question(candidate="a", rival="b", samples=1, metric="hard", policy="exact_paired", alpha=0.05, settings="")


def opened(training: Training, *, prepares: bool = False) -> Training:
    """The same run, as tasks open it that follow, or all of them from the first one on."""
    return Training(training.config, store=training.store, done={} if prepares else training.done)


def stored_night(folder: Path, version: int = 1) -> Path:
    """The items of a night, as a file."""
    items = folder / f"date={DATE}" / "items.json"
    items.parent.mkdir(exist_ok=True)
    items.write_text(json.dumps(healthy(version)))
    return items


def begun_on_monday() -> Training:
    """A training that searches, and has done its first task alone."""
    training = Training.of(
        model__harness="tools",
        search__conn_id="skillopt_search",
        train__num_epochs=1,
        train__steps_per_epoch=1,
        preflight=False,
    )
    training.prepare()
    record = training.run.record.model_copy(update={"created": MONDAY, "prices": {"target": THEN, "optimizer": THEN}})
    training.store.put_model(training.run.keys.config, record)
    return opened(training)


@pytest.mark.nightly
def test_a_run_that_is_prepared_again_on_another_day_finds_its_rollouts_and_keeps_its_prices() -> None:
    training = begun_on_monday()
    early = opened(training, prepares=True)
    early.prepare()
    assert early.run.record.created == MONDAY
    # It has no state yet, so it takes the prices of today.
    assert THEN not in early.run.prices.values()
    training = begun_on_monday()
    training()
    assert training.rollouts
    cleared = opened(training, prepares=True)
    cleared.prepare()
    again = opened(cleared)
    assert again() == training.state
    assert not again.rollouts
    assert again.run.record.created == MONDAY
    assert again.run.prices == {"target": THEN, "optimizer": THEN}


def scoring(folder: Path, **knobs: Any) -> object:
    return planned_scoring(Training.of(**knobs))


def planned_scoring(training: Training) -> Any:
    request, config = one_cell(skills=("seed",), splits=(Split.VAL,)), training.config
    return prepare_matrix(training.run, config, request, lambda target, harness: config).chunks[0]


def night(folder: Path, **knobs: Any) -> object:
    nights = Nights()
    nights.publish(CHAMPION)
    stored_night(folder)
    return planned_night(nights, Training.of(regate__fresh_uri=str(folder), **knobs))


def planned_night(nights: Nights, training: Training) -> Any:
    training.models.artifacts = nights.store
    return prepare_night(training.run, training.config, DATE, TARGET, Commands("publish_searchqa", {}))


@pytest.mark.nightly
def test_a_settled_night_keeps_its_items_and_asks_no_model(tmp_path: Path) -> None:
    nights = Nights()
    nights.publish(CHAMPION)
    items = stored_night(tmp_path)
    config = configured("searchqa", {"model.target": TARGET, "regate.fresh_uri": str(tmp_path)})

    def done() -> Training:
        training = Training(config, name=f"regate-{DATE}", store=nights.store)
        training.run_containers(planned_night(nights, training))
        assert conclude_night(training.run).night.date == DATE
        return training

    first = done()
    assert first.models.checked == [MEASURING_ROLES]
    stored = first.run.keys.items(Split.FRESH)
    before = nights.store.get_bytes(stored)
    stored_night(tmp_path, 2)
    assert done().models.checked == []
    items.unlink()
    assert done().models.checked == []
    assert nights.store.get_bytes(stored) == before


def test_a_night_of_a_target_without_a_champion_names_the_targets_that_have_one(tmp_path: Path) -> None:
    new = "openai-chat:new"
    training = Training.of(regate__fresh_uri=str(tmp_path), model__target=new)
    nights = Nights()
    training.models.artifacts = nights.store

    def prepared(base: str, **overrides: str) -> object:
        told = Commands("team_publish_searchqa", {key.replace("__", "."): one for key, one in overrides.items()})
        return prepare_night(training.run, training.config, DATE, base, told)

    assert prepared(new) == "no_data: nothing is published, so there is no champion to check"
    nights.publish(CHAMPION)
    with pytest.raises(ConfigError, match=f"the target {new} has no champion") as raised:
        prepared(new)
    command = f"""airflow dags trigger team_publish_searchqa --conf '{{"run": "run", "target": "{new}"}}'"""
    assert str(raised.value).endswith(f"until {new} has a champion; to publish that of {TARGET}: {command}")
    # The new model may be behind another connection.
    training.config = configured("searchqa", {"model.target": new, "model.target_conn_id": "new_model"})
    conf = f"""{{"run": "run", "target": "{new}", "overrides": {{"model.target_conn_id": "new_model"}}}}"""
    with pytest.raises(ConfigError, match=re.escape(f"--conf '{conf}'")):
        prepared(new)
    # Where the night looks for skills, the publication does, too.
    with pytest.raises(ConfigError, match=re.escape('"new_model", "storage.bucket": "theirs"}')):
        prepared(new, storage__bucket="theirs", regate__fresh_uri="elsewhere")
    training.config = configured("searchqa", {"model.target": new, "regate.fresh_uri": str(tmp_path)})
    # For another target than the benchmark's own, the benchmark's champion is measured.
    assert str(prepared(TARGET)).startswith(f"no_data: {tmp_path}")


def test_items_that_a_gate_is_to_protect_have_to_be_there() -> None:
    with pytest.raises(ConfigError, match="item nobody"):
        Training.of(evaluation__gate_protected_items=["nobody"]).prepare()


@pytest.mark.parametrize("prepare", [scoring, night])
def test_where_skills_are_only_measured_a_budget_in_dollars_needs_the_prices_of_target_and_judge(
    prepare: Callable[..., object], tmp_path: Path
) -> None:
    for prices, unknown in (({}, f"the target {TARGET} and the judge {JUDGE}"), (PRICED, f"the judge {JUDGE}")):
        with pytest.raises(ConfigError, match=rf"^budget\.max_usd = 1: no price is known for {unknown}\. "):
            prepare(tmp_path, budget__max_usd=1.0, budget__prices=prices, model__judge=JUDGE)
    # Nobody asks the optimizer.
    assert prepare(tmp_path, budget__max_usd=1.0, budget__prices=PRICED)


def test_the_seed_of_an_evaluation_is_the_one_that_a_training_has_measured() -> None:
    training = Training.of()
    training.run_containers(training.prepare())
    evaluation = Training(training.config, name="evaluation", store=training.store)
    evaluation.run_containers(planned_scoring(evaluation))
    assert training.rollouts
    assert not evaluation.rollouts
    # It checks no model that it doesn't ask.
    assert evaluation.models.checked == [MEASURING_ROLES]


def test_the_gain_that_publishing_can_find_is_that_of_its_next_look() -> None:
    training = Training.of(evaluation__test_limit=12)
    training.prepare()
    assert [gain.look for gain in training.run.record.smallest_gains] == [1, 1]
    training.run.published.looks.enter(marks(training), QUESTION, Split.TEST, "other", "other", stored=True)
    prepare_training(training.run, training.config)
    record = training.run.store.get_model(training.run.keys.config, RunRecord)
    assert [gain.look for gain in record.smallest_gains] == [1, 2]


DECLARED = {"prompt": "{{ question }} {{ context }}", "reference": "answers", "id": "id", "score": {"by": "exact"}}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "knobs",
    [
        {"evaluation.test_limit": 11},
        {"data.limit": 40},
        # Its test split begins with other items, so it has to look at all of them to meet the same.
        {"data.split_ratio": "1:1:8", "evaluation.test_limit": None},
        {"task": DECLARED | {"id": "question"}},
        {"data.uri": "copy.json"},
        {"data.uri": "grown.json"},
        {"publishing.gate_alpha": 0.2, "publishing.samples": 2, "model.temperature": 1.0},
    ],
    ids=str,
)
def test_no_setting_of_a_run_begins_another_ledger_for_the_same_data(knobs: dict[str, Any], tmp_path: Path) -> None:
    rows = [
        {"id": f"i-{number}", "question": f"Who is number {number}?", "context": "A list.", "answers": f"{number}"}
        for number in range(120)
    ]
    spaced = [{**dict(reversed(row.items())), "question": f" {row['question']} \n"} for row in rows]
    files = {"all.json": rows, "copy.json": spaced, "grown.json": [*rows, {**rows[0], "id": "new", "question": "New?"}]}
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    plain = {"task": DECLARED, "data.split_mode": "ratio", "data.uri": "all.json", "evaluation.test_limit": 12}
    first, again = (declared_training(plain | changed, tmp_path) for changed in ({}, knobs))
    ledger = first.run.published.looks
    assert ledger.enter(marks(first), QUESTION, Split.TEST, "other", "other", stored=True).number == 1
    assert ledger.next_number(marks(again)) == 2


def marks(training: Training) -> list[str]:
    return [item_mark(item) for item in training.run.items(Split.TEST)]


def declared_training(knobs: dict[str, Any], folder: Path) -> Training:
    place = {"data.uri": str(folder / str(knobs["data.uri"])), "evaluation.val_limit": None, "train.num_epochs": 1}
    training = Training(configured("searchqa", knobs | place))
    training.prepare()
    return training
