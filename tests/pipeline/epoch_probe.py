"""For a process with an Airflow of its own: what becomes of an epoch's DAG run if tasks of its end fail.

Arguments: a folder with a DAG file of `train_searchqa_epoch`, and the names of tasks. For each, the DAG run is gone
through with that task failing, and its state is printed. What is left out is that tasks run; none has any chunks.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from airflow.models.dagbag import DBDagBag
from airflow.models.taskmap import TaskMap
from airflow.sdk import DAG
from airflow.sdk.exceptions import DownstreamTasksSkipped
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType

from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.pipeline.tasks import stages as tasks
from tests.pipeline.stored_dag import store_dag

LAST_GATE, WANTED = "step_01.gate", [Moment(kind="slow_update", epoch=2, step=2)]


def skipped_by(dag: DAG, task_id: str, ends: list[Moment]) -> set[str]:
    """The tasks that a gate skips at once, the epoch having these ends."""
    tasks.get_current_context = lambda: {"task": dag.task_dict[task_id]}
    try:
        tasks._skip_to(ends)
    except DownstreamTasksSkipped as skipped:
        return {name for name in skipped.tasks if isinstance(name, str)}
    return set()


def ended(dag: DAG, fails: str) -> str:
    """The state in which the DAG run ends."""
    skipped = skipped_by(dag, LAST_GATE, WANTED)
    with create_session() as session:
        stored = DBDagBag().get_latest_version_of_dag(dag.dag_id, session=session)
        assert stored is not None
        run = stored.create_dagrun(
            run_id=f"fails-{fails}",
            run_after=datetime.now(UTC),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            session=session,
        )
        for one in run.task_instances:
            one.state = TaskInstanceState.SKIPPED if one.task_id in skipped else None
        while run.state == DagRunState.RUNNING:
            run.dag = stored
            ready, _ = run.update_state(session=session, execute_callbacks=False)
            for one in ready:
                one.state = TaskInstanceState.FAILED if one.task_id == fails else TaskInstanceState.SUCCESS
                where = {"dag_id": one.dag_id, "task_id": one.task_id, "run_id": one.run_id, "map_index": -1}
                session.add(TaskMap(**where, length=0, keys=None))
            session.flush()
        return str(run.state)


if __name__ == "__main__":
    epoch = store_dag(Path(sys.argv[1]))
    print(json.dumps({fails: ended(epoch, fails) for fails in sys.argv[2:]}))
