import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Split
from skillopt_airflow.store import keys

NAMES = st.text(min_size=1, max_size=300)


@pytest.mark.parametrize("name", ["manual__demo-1", "scheduled__2026-11-21", "a"])
def test_a_safe_run_id_is_its_own_name(name: str) -> None:
    assert keys.run_name(name) == name


def test_an_airflow_run_id_stays_readable() -> None:
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
    assert keys.partition_name(value) == name


def test_run_keys() -> None:
    run = keys.RunKeys("team/", "searchqa", "r1")
    assert run.config == "team/runs/searchqa/r1/config.json"
    assert run.data_manifest == "team/runs/searchqa/r1/data_manifest.json"
    assert run.quality == "team/runs/searchqa/r1/data_quality.json"
    assert run.items(Split.VAL) == "team/runs/searchqa/r1/data/val.parquet"
    assert run.history == "team/runs/searchqa/r1/history.json"
    assert run.runtime_state == "team/runs/searchqa/r1/runtime_state.json"
    assert run.best_skill == "team/runs/searchqa/r1/best_skill.md"
    assert run.report == "team/runs/searchqa/r1/report.html"
    assert run.skill(7) == "team/runs/searchqa/r1/skills/skill_v0007.md"


def test_step_keys() -> None:
    step = keys.RunKeys("", "searchqa", "r1").moment(Moment(kind="step", epoch=2, step=7))
    folder = "runs/searchqa/r1/steps/step_0007/"
    assert step.merged_patch == f"{folder}merged_patch.json"
    assert step.ranked_edits == f"{folder}ranked_edits.json"
    assert step.candidate_skill == f"{folder}candidate_skill.md"
    assert step.edit_apply_report == f"{folder}edit_apply_report.json"
    assert step.gate == f"{folder}gate.json"
    assert step.state == f"{folder}state.json"
    assert step.reflection("failure", 0) == f"{folder}reflections/failure-0.json"
    assert step.timing("rollout", 3) == f"{folder}timing/rollout-3.json"


def test_table_partitions() -> None:
    partition = keys.trajectories(
        "p/",
        benchmark="searchqa",
        target="openai-chat:org/model",
        harness="chat",
        split=Split.TRAIN,
        skill_sha256="0123456789abcdef",
        draw=0,
    )
    assert partition == (
        "p/trajectories/benchmark=searchqa/target=openai-chat%3Aorg%2Fmodel/harness=chat/split=train/"
        "skill=0123456789ab/draw=0/"
    )
    assert keys.part(partition, "x") == f"{partition}part-x.parquet"
    values = keys.partition_values(keys.part(partition, "x"))
    assert list(values) == ["benchmark", "target", "harness", "split", "skill", "draw"]
    assert keys.usage("", benchmark="searchqa", run="r1") == "usage/benchmark=searchqa/run=r1/"


def test_transfer_keys() -> None:
    transfer = keys.TransferKeys("team/", "searchqa")
    assert transfer.matrix("r-1") == "team/transfer/benchmark=searchqa/run=r-1/matrix.json"
    assert transfer.table("r-1") == "team/transfer/benchmark=searchqa/run=r-1/matrix.parquet"
    assert transfer.markdown("r-1") == "team/transfer/benchmark=searchqa/run=r-1/matrix.md"
    noon, later = datetime(2026, 11, 9, 12, tzinfo=UTC), datetime(2026, 11, 10, tzinfo=UTC)
    named = [transfer.naming("abc", created, run) for created, run in ((noon, "transfer-2-b"), (later, "a-1"))]
    assert named[0] == "team/transfer/benchmark=searchqa/skills/abc/20261109T120000Z-transfer-2-b"
    assert sorted(named) == named
    assert [transfer.named(key) for key in named] == ["transfer-2-b", "a-1"]
    assert all(key.startswith(transfer.of_skill("abc")) for key in named)


def test_artifact_keys() -> None:
    artifacts = keys.ArtifactKeys("", "searchqa", "openai-chat:m")
    version = artifacts.version(keys.version_name(3, "0123456789abcdef"))
    assert version.manifest == "skills/searchqa/openai-chat%3Am/versions/v0003-0123456789ab/manifest.json"
    assert version.best_skill.endswith("/v0003-0123456789ab/best_skill.md")
    assert version.skill_md.endswith("/v0003-0123456789ab/SKILL.md")
    assert artifacts.champion == "skills/searchqa/openai-chat%3Am/aliases/champion.json"
