"""A skill's life by clicks in Airflow's UI alone: train with changed Params, approve the publication, roll back."""

import time
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By

from skillopt_airflow import benchmarks
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, run_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.champion.publication import PublicationPlan
from tests.pipeline.trained_run import DAG, EPOCH_DAG, TrainedRun, wait_for_task
from tests.store.test_artifacts import provenance
from tests.training.in_process import step_keys
from tests.ui.airflow_pages import Page, ShownReport

pytestmark = pytest.mark.platform

ROLLBACK = "rollback_searchqa"
TARGET = "openai-chat:stand-in-target"
APPROVE_PUBLICATION = "publication.approve"
APPROVE_ROLLBACK = "approve"
WAITING = "awaiting_input"
SECONDS_TO_BEGIN = 300
CHANGED = {
    "train": {"train.num_epochs": 1},
    "publishing": {"publishing.approval": True},
}
OVERRIDES = {
    "publishing.samples": 2,
    # However few items a short training wins by, it publishes.
    "publishing.gate_policy": "strict",
    "evaluation.test_limit": 20,
    "evaluation.eval_test": False,
    "train.steps_per_epoch": 2,
    "train.seed": 1,
}
"""Knobs that the form has no field for."""
REASON = "worse on fresh items since <b>Monday</b>"


class Published:
    """A part of the buckets with a champion: the seed skill, as an earlier run would have published it."""

    def __init__(self, platform: Any) -> None:
        self.name = f"ui-{time.time_ns()}"
        self.prefix = f"{self.name}/"
        keys = ArtifactKeys(self.prefix, "searchqa", TARGET)
        self.artifacts = ArtifactStore(ObjectStore(platform.s3, "skillopt-artifacts"), keys)
        seed = benchmarks.seed_skill("searchqa").read_text(encoding="utf-8")
        self.first = self.artifacts.publish(seed, provenance("earlier"), None).version

    def more(self, **overrides: Any) -> dict[str, Any]:
        """The form's field for what has no field of its own."""
        return {"overrides": {"storage.prefix": self.prefix} | overrides}

    @property
    def champion(self) -> str:
        alias = self.artifacts.champion.read()
        assert alias is not None
        return alias.version


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def before(platform: Any) -> Published:
    for dag in (DAG, EPOCH_DAG, ROLLBACK):
        platform.api.wait_for_dag(dag)
    return Published(platform)


@pytest.fixture(scope="module")
def watched(platform: Any, page: Page, before: Published, shots: Path) -> list[ShownReport]:
    """Triggered by the form; what the run's report showed from its first step until its second, without a reload."""
    page.trigger(DAG, before.name, CHANGED | {"more": before.more(**OVERRIDES)})
    run = TrainedRun(platform, before.name, before.prefix)
    deadline = time.monotonic() + SECONDS_TO_BEGIN
    while not run.store.exists(step_keys(run.keys, 1).state):
        assert time.monotonic() < deadline, "the first step did not end"
        time.sleep(1)
    with page.open_report(DAG, before.name) as tab:
        tab.mark()
        first = tab.wait_for("steps")
        tab.open_details()
        last = tab.wait_for("in 2 steps")
        page.driver.save_screenshot(str(shots / "report.png"))
    return [first, last]


@pytest.fixture(scope="module")
def trained(platform: Any, page: Page, before: Published, shots: Path, watched: list[ShownReport]) -> TrainedRun:
    """Approved by the button."""
    run = TrainedRun(platform, before.name, before.prefix)
    page.leave()
    wait_for_task(platform, DAG, before.name, APPROVE_PUBLICATION, WAITING, seconds=600)
    asked = page.open_approval(DAG, before.name, APPROVE_PUBLICATION, "Publish a new champion of searchqa?")
    page.driver.save_screenshot(str(shots / "publication.png"))
    assert f"wants to replace champion {before.first}." in asked
    assert "candidate current difference (95%) won lost tied" in asked
    # The difference has lines that stay, and new ones.
    assert "\n - " in asked
    assert "\n+- " in asked
    assert before.champion == before.first
    page.approve()
    page.leave()
    return run.wait()


def test_the_report_of_a_running_training_changes_without_being_loaded_again(watched: list[ShownReport]) -> None:
    first, last = watched
    assert first.renews
    assert last.marked
    assert last.opened


def test_the_report_of_a_training_that_is_over_is_not_asked_for_again(page: Page, trained: TrainedRun) -> None:
    with page.open_report(DAG, trained.run_id):
        page.wait_for_text("The run published v0002-")
        assert page.driver.find_elements(By.CSS_SELECTOR, "[data-refresh]") == []


def test_the_form_changes_what_the_run_does(platform: Any, trained: TrainedRun, before: Published) -> None:
    asked = platform.api.run(DAG, trained.run_id)["conf"]
    wanted = {name: value for values in CHANGED.values() for name, value in values.items()}
    wanted |= before.more(**OVERRIDES)
    assert {name: asked[name] for name in wanted} == wanted
    assert len(trained.history.steps) == 2
    keys = trained.keys.publication(run_name(trained.run_id))
    rules = trained.store.get_model(keys.contest, PublicationPlan).rules
    assert (rules.gate_policy, rules.approval, rules.samples) == ("strict", True, 2)


def test_what_was_approved_is_the_champion_and_is_seen_in_the_ui(
    page: Page, trained: TrainedRun, before: Published
) -> None:
    version = before.champion
    assert version.startswith("v0002-")
    assert before.artifacts.read(version).manifest.run == run_name(trained.run_id)
    assert "The gate accepted" in page.report(
        DAG, trained.run_id, f"The run published {version}, by look 1 at these items of the test split."
    )


def test_a_rollback_by_the_form_waits_for_its_approval(
    platform: Any, page: Page, trained: TrainedRun, before: Published, shots: Path
) -> None:
    left, run_id = before.champion, f"back-{before.name}"
    asked = {"Run Parameters": {"version": before.first, "reason": REASON}, "more": before.more()}
    page.trigger(ROLLBACK, run_id, asked)
    page.leave()
    wait_for_task(platform, ROLLBACK, run_id, APPROVE_ROLLBACK, WAITING)
    page.open_approval(ROLLBACK, run_id, APPROVE_ROLLBACK, "Roll back the champion of searchqa?", left, REASON)
    page.driver.save_screenshot(str(shots / "rollback.png"))
    assert before.champion == left
    page.approve()
    assert platform.api.wait(ROLLBACK, run_id, seconds=120) == "success"
    assert before.champion == before.first
    history = before.artifacts.champion.history()
    assert [alias.version for alias in history] == [before.first, left, before.first]
    assert history[-1].reason == REASON
