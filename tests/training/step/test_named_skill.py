"""A training that begins with another skill than the seed."""

from types import SimpleNamespace

import pytest

from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.provenance import LineOrigin, LinesOfSkill
from skillopt_airflow.pipeline.tasks.triggered import after_decline
from skillopt_airflow.report import summary
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.training.champion.publication import gate_publication, plan_publication, publish_best
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.report.reporting import view_of, write_report
from skillopt_airflow.training.run.connections import published_skills
from tests.store.test_artifacts import provenance
from tests.training.in_process import Training, configured

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def first() -> Training:
    """A training of two steps, whose skill is published."""
    training = Training.of(train__num_epochs=1, optimizer__use_slow_update=False)
    training()
    return training


def published(training: Training) -> ArtifactStore:
    run = training.run
    return published_skills(run.connections, run.config.storage, "searchqa", str(run.config.model.target))


def begun(first: Training, init_skill: str, name: str) -> Training:
    """A training of two steps more on other batches, with the stores of the first one."""
    knobs = {"train.init_skill": init_skill, "train.num_epochs": 1, "train.seed": 1, "optimizer.use_slow_update": False}
    training = Training(configured("searchqa", knobs), name=name, store=first.store)
    training.models.artifacts = first.models.artifacts
    return training


@pytest.fixture(scope="module")
def version(first: Training) -> str:
    """Its version."""
    run, artifacts = first.run, published(first)
    first.run_containers(plan_publication(run, artifacts, "first", PublishingGroup(gate_policy="strict")))
    assert gate_publication(run, "first") == ""
    return publish_best(run, artifacts, "first").version


@pytest.mark.nightly
def test_a_training_from_the_champion_goes_on_where_one_from_the_seed_needs_twice_the_steps(
    first: Training, version: str
) -> None:
    more, whole = begun(first, "champion", "more"), Training.of(optimizer__use_slow_update=False)
    more()
    whole()
    begin, end = history_of(first.run), history_of(more.run)
    assert end.seed.score == begin.best.score
    assert end.best.score > begin.best.score
    steps = [moment.best_score for moment in history_of(whole.run).steps]
    assert len(steps) == 2 * len(end.steps)
    # In as many steps the training from the seed does not get there.
    assert max(steps[: len(end.steps)]) < end.best.score
    assert more.run.record.init_version == version
    told = summary.outcome(view_of(more.run, write_report(more.run)))
    assert version in told.partition(".")[0]


def origins(training: Training, skill_version: int) -> tuple[LineOrigin, ...]:
    run = training.run
    return run.store.get_model(run.keys.line_origins(skill_version), LinesOfSkill).lines


@pytest.mark.nightly
def test_provenance_goes_on_from_there(first: Training, version: str) -> None:
    more = begun(first, version, "provenance")
    more()
    theirs, begin = origins(first, first.state.best.version), origins(more, 0)
    assert begin == tuple(line.model_copy(update={"run": first.run.ref.run}) for line in theirs)
    assert {line.run for line in origins(more, more.state.best.version)} == {first.run.ref.run, ""}
    write_report(more.run)
    assert f"of run {first.run.ref.run}" in more.store.get_text(more.run.keys.report)


@pytest.mark.nightly
def test_a_text_gets_the_regions_of_the_run(first: Training) -> None:
    training = Training.of(train__init_skill="# Mine\n\nLook twice.\n")
    training.prepare()
    assert training.run.skill(0).text.startswith("# Mine\n\nLook twice.\n")
    assert training.run.skill(0).region("SLOW_UPDATE") == ""
    assert training.run.record.init_version == ""


def test_a_run_that_is_prepared_again_stays_with_the_champion_that_it_began_with(first: Training, version: str) -> None:
    more = begun(first, "champion", "again")
    more()
    began, artifacts = more.run.skill(0), published(more)
    artifacts.publish("# Another\n", provenance("another"), artifacts.champion.read())
    more.prepare()
    assert more.run.skill(0) == began
    assert more.run.record.init_version == version


def test_what_is_no_skill_is_refused(first: Training) -> None:
    with pytest.raises(ConfigError, match="skill 'best': expected seed, champion, a version"):
        begun(first, "best", "wrong").prepare()
    with pytest.raises(ConfigError, match="nothing is published"):
        Training.of(train__init_skill="champion").prepare()


def test_a_training_that_a_decline_started_begins_with_the_champion() -> None:
    decline, person = (SimpleNamespace(run_type=kind) for kind in ("asset_triggered", "manual"))
    form = {"train.init_skill": "seed", "train.seed": 7}
    assert after_decline(decline, form) == {"train.init_skill": "champion", "train.seed": 7}
    assert after_decline(person, form) == form
    assert (
        after_decline(decline, {"train.init_skill": "v0001-0123456789ab"})["train.init_skill"] == "v0001-0123456789ab"
    )
