"""The task of the batch ahead, whose chunks are written down instead of rolled out."""

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline import speculation_task
from skillopt_airflow.pipeline.rollout_chunk import RolloutChunk
from skillopt_airflow.pipeline.speculation_task import Speculation
from skillopt_airflow.training.rollout_plan import planned
from skillopt_airflow.training.run import TrainingRun
from tests.training.in_process import Training

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr(RolloutChunk, "execute", lambda task, context: context.append(task.chunk))
    monkeypatch.setattr(speculation_task, "moment_at", lambda ref, position: (run, at[position]))
    # Nothing more of a step that is over.
    with pytest.raises(AirflowSkipException):
        Speculation(task_id="speculate", run={}, at=1).execute(rolled_out)
    assert rolled_out == []
    monkeypatch.setattr(TrainingRun, "committed", lambda run, moment: False)
    Speculation(task_id="speculate", run={}, at=1).execute(rolled_out)
    chunks = [planned(run, ref)[1] for ref in rolled_out]
    assert len(chunks) > 1
    assert {chunk.stage for chunk in chunks} == {"speculate"}
    items = [item for chunk in chunks for item in chunk.item_ids]
    assert sorted(items) == sorted(item.id for part in run.slices(last) for item in part)
    with pytest.raises(AirflowSkipException, match="no step follows"):
        Speculation(task_id="speculate", run={}, at=2).execute(rolled_out)
