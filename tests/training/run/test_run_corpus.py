"""The corpus of a run: stored when it is prepared, a part of its rollouts' key, and the same to its end."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.prepare.preparation import prepare_training
from skillopt_airflow.training.run.run_documents import stored_corpus
from tests.training.in_process import Training

SKILL = SkillDocument("# Skill\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    made.mkdir()
    (made / "a.txt").write_text("alpha")
    return made


def prepared(address: Path | None, **options: object) -> Training:
    training = Training.of(data__corpus=None if address is None else str(address), **options)
    training.prepare()
    return training


def settings_of(training: Training) -> str:
    return training.run.rollout_key(Split.VAL, SKILL, 0).settings_sha256


def test_a_run_without_a_corpus_stores_none() -> None:
    training = prepared(None)
    assert training.run.record.corpus == ""
    assert stored_corpus(training.run) is None
    assert not training.store.list_keys("corpora/")


def test_rollouts_with_another_corpus_are_other_rollouts_and_a_run_keeps_its_own(folder: Path) -> None:
    training = prepared(folder)
    without, one = settings_of(prepared(None)), settings_of(training)
    assert settings_of(prepared(folder)) == one != without
    (folder / "a.txt").write_text("beta")
    assert settings_of(prepared(folder)) not in {one, without}
    corpus = stored_corpus(training.run)
    assert [(file.name, file.size) for file in corpus.manifest.files] == [("a.txt", 5)]
    assert b"alpha" in b"".join(corpus.archives())


def test_who_uses_the_corpus_tells_the_cleanup_so_and_says_so_where_it_came_too_late(folder: Path) -> None:
    training = prepared(folder)
    key, later = f"corpora/{training.run.record.corpus}/manifest.json", datetime(2100, 1, 1, tzinfo=UTC)
    training.store.clock = lambda: later
    stored_corpus(training.run)
    assert training.store.written[key] == later
    assert training.store.list_older("corpora/", later) == [key.replace("manifest.json", "0000.tar")]
    training.store.delete(key)
    with pytest.raises(DataError, match=r"retention\.trajectory_days"):
        stored_corpus(training.run)


def test_a_run_with_steps_is_not_prepared_again_with_another_corpus(folder: Path) -> None:
    small = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "evaluation__eval_test": False}
    training = Training.of(data__corpus=str(folder), **small)
    training()
    prepare_training(training.run, training.config)
    (folder / "b.txt").write_text("beta")
    with pytest.raises(ConfigError, match="changed since: the corpus"):
        prepare_training(training.run, training.config)
