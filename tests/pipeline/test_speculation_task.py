"""The task of the batch ahead, in the place of whose engine's operator the chunks are written down."""

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline import speculation_task
from skillopt_airflow.pipeline.rollout_chunk import ChunkTask
from skillopt_airflow.pipeline.speculation_task import SpeculationTask
from skillopt_airflow.training.rollout_plan import planned
from skillopt_airflow.training.run import TrainingRun
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


class WrittenDown(ChunkTask):
    def execute(self, context: Any) -> None:
        context.append(self.chunk)


class Ahead(SpeculationTask, WrittenDown): ...


@pytest.mark.nightly
def test_a_batch_ahead_is_rolled_out_a_chunk_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training.of(
        train__num_epochs=1,
        train__steps_per_epoch=2,
        train__preflight=False,
        train__speculative_rollout=True,
        sandbox__items_per_container=3,
    )
    training()
    run, rolled_out = training.run, list[JsonObject]()
    first, last = run.timeline[1:3]
    at = {1: first, 2: last}
    monkeypatch.setattr(speculation_task, "moment_at", lambda ref, position: (run, at[position]))
    # Nothing more of a step that is over.
    with pytest.raises(AirflowSkipException):
        Ahead(task_id="speculate", run={}, at=1).execute(rolled_out)
    assert rolled_out == []
    monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: False)
    Ahead(task_id="speculate", run={}, at=1).execute(rolled_out)
    chunks = [planned(run, ref)[1] for ref in rolled_out]
    assert len(chunks) > 1
    assert {chunk.stage for chunk in chunks} == {"speculate"}
    items = [item for chunk in chunks for item in chunk.item_ids]
    assert sorted(items) == sorted(item.id for part in run.slices(last) for item in part)
    with pytest.raises(AirflowSkipException, match="no step follows"):
        Ahead(task_id="speculate", run={}, at=2).execute(rolled_out)
