import re
from datetime import UTC, datetime
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store import keys

NAMES = st.text(min_size=1, max_size=300)


def test_an_airflow_run_id_stays_readable() -> None:
    assert keys.run_name("scheduled__2026-11-21") == "scheduled__2026-11-21"
    name = keys.run_name("manual__2026-11-21T03:41:47.5+00:00")
    assert re.fullmatch(r"manual__2026-11-21T03-41-47\.5-00-00-[0-9a-f]{8}", name)


@given(NAMES)
def test_a_run_name_is_safe_in_keys_and_partitions(dag_run_id: str) -> None:
    name = keys.run_name(dag_run_id)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name)
    assert len(name) <= keys.MAX_RUN_NAME
    assert keys.run_name(name) == name


@given(NAMES, NAMES)
def test_different_run_ids_have_different_names(one: str, other: str) -> None:
    assert (keys.run_name(one) == keys.run_name(other)) == (one == other)


@given(NAMES)
def test_partition_values_are_safe_and_reversible(name: str) -> None:
    value = keys.partition_value(name)
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", value)
    assert value not in {".", ".."}
    assert unquote(value) == name


def test_run_keys() -> None:
    run = keys.RunKeys("team/", "searchqa", "r1")
    assert run.items(Split.VAL) == "team/runs/searchqa/r1/data/val.parquet"
    assert run.skill(7) == "team/runs/searchqa/r1/skills/skill_v0007.md"
    step, folder = run.moment(Moment(kind="step", epoch=2, step=7)), "team/runs/searchqa/r1/steps/step_0007/"
    assert step.state == f"{folder}state.json"
    assert step.reflection("failure", 0) == f"{folder}reflections/failure-0.json"
    assert step.timing("rollout", 3) == f"{folder}timing/rollout-3.json"
    named = (run.config, run.data_manifest, run.quality, run.history, run.best_skill, run.report)
    files = "config.json data_manifest.json data_quality.json history.json best_skill.md report.html"
    assert [key.removeprefix("team/runs/searchqa/r1/") for key in named] == files.split()


def test_table_partitions() -> None:
    partition = keys.trajectories(
        "p/",
        benchmark="searchqa",
        target="openai-chat:org/model",
        harness="chat",
        split=Split.TRAIN,
        skill_sha256="0123456789abcdef",
        sample=0,
    )
    assert partition == (
        "p/trajectories/benchmark=searchqa/target=openai-chat%3Aorg%2Fmodel/harness=chat/split=train/"
        "skill=0123456789ab/sample=0/"
    )
    assert keys.part(partition, "x") == f"{partition}part-x.parquet"
    values = keys.partition_values(keys.part(partition, "x"))
    assert list(values) == ["benchmark", "target", "harness", "split", "skill", "sample"]
    assert keys.usage("", benchmark="searchqa", run="r1") == "usage/benchmark=searchqa/run=r1/"


def test_matrix_keys() -> None:
    matrices = keys.MatrixKeys("team/", "searchqa")
    noon, later = datetime(2026, 11, 9, 12, tzinfo=UTC), datetime(2026, 11, 10, tzinfo=UTC)
    named = [matrices.naming("abc", created, run) for created, run in ((noon, "evaluate-2-b"), (later, "a-1"))]
    assert named[0] == "team/evaluations/benchmark=searchqa/skills/abc/20261109T120000Z-evaluate-2-b"
    assert sorted(named) == named
    assert all(key.startswith(matrices.of_skill("abc")) for key in named)


def test_artifact_keys() -> None:
    artifacts = keys.ArtifactKeys("", "searchqa", "openai-chat:m")
    version = artifacts.version("v0003-0123456789ab")
    assert version.manifest == "skills/searchqa/openai-chat%3Am/versions/v0003-0123456789ab/manifest.json"

    assert artifacts.champion == "skills/searchqa/openai-chat%3Am/aliases/champion.json"
