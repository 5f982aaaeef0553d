from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.preset import StatedScores
from skillopt_airflow.core.provenance import LinesOfSkill
from skillopt_airflow.core.service_groups import PublishingGroup
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, run_name
from skillopt_airflow.training.approval import publication_body
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.imported import ImportedRun, ReferenceRun, import_run
from skillopt_airflow.training.publication import gate_publication, plan_publication, publish_best
from skillopt_airflow.training.run import TrainingRun
from tests.training.in_process import Training, configured
from tests.training.local_store import LocalStore
from tests.training.reference_folder import BEST, LAST, SEED, STEP, write


def imported(folder: Path, **knobs: Any) -> tuple[Training, ReferenceRun, bool]:
    reference = ReferenceRun(folder)
    paths = {"model.target": "openai-chat:stand-in-target", "model.optimizer": "openai-chat:stand-in-optimizer"}
    config = configured("searchqa", reference.overrides(benchmark_config("searchqa")) | paths | knobs)
    training = Training(config, name=reference.name)
    return training, reference, import_run(training.run, config, reference)


def test_a_folder_becomes_a_run_that_has_measured_nothing(tmp_path: Path) -> None:
    training, reference, is_new = imported(write(tmp_path / "my_run"))
    run = training.run
    assert is_new
    assert run.ref.run == reference.name
    assert reference.name.startswith("my_run-")
    assert [run.skill(version).text for version in range(4)] == [SEED, STEP, BEST, LAST]
    assert run.store.get_text(run.keys.best_skill) == BEST
    assert (run.config.optimizer.learning_rate, run.config.train.num_epochs) == (6, 2)
    final = run.newest_state()
    assert (final.best.version, final.current.version, final.newest) == (2, 3, 3)
    assert final.best.evaluation.scores == run.state(run.timeline[0]).best.evaluation.scores == {}
    assert not run.is_reported
    assert run.record.stated == StatedScores(
        source="summary.json of my_run, a run of the reference implementation", target="gpt-5.5", seed=0.4, best=0.6
    )
    document = run.store.get_model(run.keys.imported, ImportedRun)
    assert [(step.step, step.action, step.selection_hard) for step in document.steps][-1] == (3, "accept_new_best", 0.7)
    assert (document.best_version, document.stated.test_hard) == (2, 0.6)
    assert {"azure_openai_api_key", "target_backend"} <= set(document.not_taken)
    assert not [key for key, body in run.store.objects.items() if b"distinctive-secret" in body]  # type: ignore[attr-defined]
    origins = run.store.get_model(run.keys.line_origins(2), LinesOfSkill).lines
    assert {line.moment for line in origins} == {"steps/step_0000", "import"}


@pytest.mark.parametrize("folder", ["my run", "run+1@home (é)", ".run"])
def test_its_name_is_one_that_addresses_can_have(tmp_path: Path, folder: str) -> None:
    names = {ReferenceRun(write(tmp_path / place / folder)).name for place in ("here", "there")}
    assert {run_name(name) for name in names} == names
    assert len(names) == 1


def test_a_folder_that_is_imported_twice_is_the_same_run(tmp_path: Path) -> None:
    folder = write(tmp_path / "my_run")
    training, reference, _ = imported(folder)
    before = dict(training.store.objects)
    assert not import_run(training.run, training.config, ReferenceRun(folder))
    assert training.store.objects == before
    (folder / "best_skill.md").write_text(STEP, encoding="utf-8")
    assert ReferenceRun(folder).name != reference.name


def test_a_second_import_with_other_data_or_settings_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "my_run")
    training, reference, _ = imported(folder)
    before = dict(training.store.objects)

    def again(path: str, value: Any, *named: str) -> bool:
        config = TrainConfig.from_layers(training.config.model_dump(), nest({path: value}))
        return import_run(training.run, config, reference, named)

    uri = training.config.data.uri
    with pytest.raises(ConfigError, match=rf"other settings.*: data\.uri = {uri}, now /elsewhere; .*another name"):
        again("data.uri", "/elsewhere")
    with pytest.raises(ConfigError, match=r": optimizer\.learning_rate = 6, now 7;"):
        again("optimizer.learning_rate", 7, "optimizer.learning_rate")
    # What a new default changes is no wish of whoever imports the folder again.
    assert not again("optimizer.learning_rate", 7, "data.uri")
    assert not again("data.uri", uri, "data.uri", "optimizer")
    assert training.store.objects == before


def test_an_import_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    training, reference, _ = imported(write(tmp_path / "my_run"))
    run = TrainingRun(training.run.ref, training.run.connections)
    del training.store.objects[run.keys.moment(run.timeline[-1]).state]
    assert import_run(run, training.config, reference)
    assert run.committed(run.timeline[-1])


def test_a_best_skill_that_is_none_of_the_steps_is_a_version_too(tmp_path: Path) -> None:
    folder = write(tmp_path / "my_run")
    (folder / "best_skill.md").write_text("# Mine\n", encoding="utf-8")
    training, _, _ = imported(folder)
    final = training.run.newest_state()
    assert (final.best.version, final.current.version) == (4, 3)
    assert training.run.skill(4).text == "# Mine\n"


@pytest.mark.slow
def test_its_best_skill_is_published_if_it_passes_the_gate(tmp_path: Path) -> None:
    training, _, _ = imported(write(tmp_path / "my_run"))
    artifacts = ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))
    run = training.run
    training.run_containers(plan_publication(run, artifacts, "p", PublishingGroup(gate_policy="paper")))
    assert gate_publication(run, "p") == ""
    assert "steps/step_0000" not in publication_body(run, "p")
    assert "import" in publication_body(run, "p")
    published = artifacts.read(publish_best(run, artifacts, "p").version)
    assert published.skill == BEST
    assert published.manifest.best_scores.val is None
    assert published.manifest.best_scores.test is not None


def broken(folder: Path, name: str, text: str | None) -> Path:
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("best_skill.md", None, r"best_skill\.md: .*No such file.*a finished training has it"),
        ("best_skill.md", "<!-- APPENDIX_END -->", r"best_skill\.md: skill, line 1: .* is doubled or has no partner"),
        ("skills/skill_v0000.md", None, r"skill_v0000\.md: no such file; the training began with it"),
        ("config.json", "{", r"config\.json: not JSON"),
        ("config.json", "[]", r"config\.json: Input should be a valid dictionary"),
        ("config.json", "{}", r"config\.json: env: Field required"),
        ("history.json", None, r"history\.json: .*No such file"),
        (
            "history.json",
            '[{"step": 1, "epoch": "one", "action": "reject"}]',
            r"history\.json: 0\.epoch: Input should be",
        ),
        ("summary.json", '{"test_hard": "good"}', r"summary\.json: test_hard: Input should be a valid number"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ReferenceRun(broken(write(tmp_path / "my_run"), name, text))


def test_no_folder() -> None:
    with pytest.raises(
        DataError, match=r"^/nowhere: no such folder; expected the output folder of a finished training"
    ):
        ReferenceRun(Path("/nowhere"))


def test_its_splits_are_those_of_its_folder_if_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "splits").mkdir()
    reference = ReferenceRun(write(tmp_path / "a", split_dir=str(tmp_path / "splits")))
    here = reference.overrides(TrainConfig())
    assert (here["data.uri"], here["data.split_mode"]) == (str(tmp_path / "splits"), "split_dir")
    assert "data.split_manifest" not in here
    by_list = {"data": {"split_mode": "manifest", "split_manifest": "x.json"}}
    own = TrainConfig.from_layers(by_list)
    assert TrainConfig.from_layers(by_list, nest(reference.overrides(own))).data.split_manifest is None
    assert "data.uri" not in ReferenceRun(write(tmp_path / "b", split_dir="/elsewhere")).overrides(TrainConfig())
