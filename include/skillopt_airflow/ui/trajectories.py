"""Trajectories: what the target did on each item, as a list with filters and as the conversation of one item."""

from collections.abc import Callable
from threading import Semaphore
from typing import TYPE_CHECKING, Annotated

from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from skillopt_airflow.core.errors import DataError, ObjectMissing, SkillOptError
from skillopt_airflow.core.types import Split
from skillopt_airflow.pipeline.dag_ids import publish_dag_id
from skillopt_airflow.pipeline.params import run_storage
from skillopt_airflow.store.keys import publication_name, run_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.matrix_cells import in_cell
from skillopt_airflow.training.run import OF_ONE_RUN, TrainingRun
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui import skill_rollouts, trajectory_item, trajectory_list
from skillopt_airflow.ui.access import may_read, may_read_dag_run
from skillopt_airflow.ui.buckets import KeptConnections
from skillopt_airflow.ui.pages import PRIVATE, app, dag_run_tab, message_page, page
from skillopt_airflow.ui.quality_tab import checked_run
from skillopt_airflow.ui.reports import DagRunRow, row_of
from skillopt_airflow.ui.trainings import benchmark_of
from skillopt_airflow.ui.trajectory_query import Asked, TrajectoryQuery
from skillopt_airflow.ui.trajectory_subject import Choice, Subject, others

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.rollout_table import RolloutKey
    from skillopt_airflow.training.rollout_stages import Planned, Stage


def of_run(ref: RunRef, asked: TrajectoryQuery) -> Subject:
    """Return the rollouts of a run that the address asks for: of one stage and skill.

    Raises:
        ObjectMissing: the run has stored nothing yet.
        SkillOptError: its documents cannot be read.
    """
    from skillopt_airflow.training import rollout_stages as stages
    from skillopt_airflow.training.publication import as_published

    run = TrainingRun(ref, KeptConnections())
    moments = stages.reached(run)
    stage = stages.find_stage(run, moments, asked.moment, asked.stage)
    if stage.splits and stage.name.startswith(stages.PUBLICATION):
        run = as_published(run, stage.name.removeprefix(stages.PUBLICATION))
    labels = {moment.name: stages.label_of(moment) for moment in moments}
    begun = Subject(
        title=labels[stage.moment.name],
        benchmark=ref.benchmark,
        store=run.store,
        prefix=ref.storage.prefix,
        rules=run.config.evaluation,
        choices=(Choice("moment", "Moment", labels, stage.moment.name),),
        run=ref.run,
    )
    if not stage.name:
        return begun
    another = f" for {run.config.model.target}" if run.for_another_model else ""
    begun = begun._replace(
        title=f"{begun.title}, {stage.names[stage.name]}{another}",
        choices=(*begun.choices, Choice("stage", "Stage", stage.names, stage.name)),
    )
    if not stage.splits:
        return begun
    rival = stages.current_before(run, stage.moment) if stage.name == "evaluate" else ""
    return _with_skills(run, begun, stage, asked)._replace(rival=rival or "")


def _with_skills(run: TrainingRun, begun: Subject, stage: "Stage", asked: TrajectoryQuery) -> Subject:
    """Return the subject with what is rolled out of a split, under which skill, and beside which one."""
    from skillopt_airflow.training.rollout_stages import skills_of

    split = next((one for one in stage.splits if one == asked.split), next(iter(stage.splits)))
    plan = stage.splits[split]
    labels = dict(skills_of(run, stage.moment, stage.name, plan.skills))
    skill = asked.skill if asked.skill in labels else plan.skills[0]
    other = asked.other if asked.other in labels and asked.other != skill else ""
    draw = asked.draw if asked.draw in plan.draws else plan.draws[0]
    # The page of an item lists nothing.
    items = None if asked.opens else _items(run, split, plan)

    cell = asked.cell if asked.cell in plan.cells else next(iter(plan.cells), None)
    in_its_cell = run if cell is None else in_cell(run, cell)

    def key(name: str) -> "RolloutKey":
        return in_its_cell.rollout_key(split, run.document(f"{run.keys.folder}{name}"), draw)

    return begun._replace(
        choices=(
            *begun.choices,
            *([] if cell is None else [Choice("cell", "Target and harness", _cells(run, plan), str(cell))]),
            Choice("split", "Split", {name.value: name.value for name in stage.splits}, split.value),
            Choice("skill", "Skill", labels, skill),
            Choice("draw", "Draw", {str(number): f"draw {number + 1}" for number in plan.draws}, str(draw)),
            Choice("other", "Beside", others(labels, skill), other),
        ),
        key=key(skill),
        label=labels[skill],
        other=key(other) if other else None,
        other_label=labels.get(other, ""),
        items=items,
        types=items,
        alone=split in OF_ONE_RUN,
        planned=len(plan.item_ids),
    )


def _cells(run: TrainingRun, plan: "Planned") -> dict[str, str]:
    cells = run.record.cells
    return {str(place): f"{cells[place].target}, {cells[place].harness}" for place in plan.cells}


def _items(run: TrainingRun, split: Split, plan: "Planned") -> "pa.Table":
    """Return the items that a plan rolls out on a split."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from skillopt_airflow.store.items import load_ref_table

    table = load_ref_table(run.store, run.keys.items(split), ["id", "fingerprint", "task_types"])
    limit = run.config.evaluation.limit(split)
    table = table if limit is None else table.slice(0, limit)
    if len(plan.item_ids) == len(table):
        return table
    return table.filter(pc.is_in(table["id"], value_set=pa.array(plan.item_ids, pa.string())))


DAG_RUN_ROUTE = "/dag_runs/{dag_id}/{run_id}/trajectories"
"""Below the plugin's prefix, as all of these; the ids as Airflow's UI has them."""
RUN_ROUTE = "/runs/{benchmark}/{run}/trajectories"
"""`run` as the run's documents have it; they are where the benchmark's configuration says."""
SKILL_ROUTE = "/skills/{benchmark}/trajectories"
"""With the parameters target, harness, split and skill, the first 12 digits of its SHA-256; without: all skills."""

AT_ONCE = Semaphore(2)
"""Pages that are read at the same time: a list of 100,000 rollouts takes 280 MB, and the API server has 40 threads."""

TRAJECTORIES_TAB = dag_run_tab("Trajectories", DAG_RUN_ROUTE)


@app.get(DAG_RUN_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_trajectories(
    request: Request, dag_id: str, run_id: str, asked: Asked, row: Annotated[DagRunRow | None, Depends(row_of)]
) -> Response:
    """Show what the training, evaluation, matrix, night or publication that the DAG run is has rolled out."""
    if row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        ref, asked = _rolled_out(dag_id, run_id, row, asked)
    except (SkillOptError, AirflowException) as error:
        return message_page(404, "Nothing is rolled out here", str(error))
    return _answer(request, asked, lambda: of_run(ref, asked))


def _rolled_out(dag_id: str, run_id: str, row: DagRunRow, asked: TrajectoryQuery) -> tuple[RunRef, TrajectoryQuery]:
    """Return the run behind a DAG run, and what is asked for: first of a training that is published, its publication.

    Raises:
        SkillOptError: the DAG rolls out nothing, or was triggered with a configuration that it does not accept.
    """
    from skillopt_airflow.training.rollout_stages import PUBLICATION

    benchmark = benchmark_of(dag_id, publish_dag_id)
    if benchmark is None:
        return checked_run(dag_id, run_id, row), asked
    run, storage = str(row.conf.get("run")), run_storage(benchmark_config(benchmark), row.conf)
    if run != run_name(run):
        raise DataError(f"{dag_id}, run {run_id}: its conf names no run of {benchmark}")
    own = {} if asked.moment else {"moment": "final", "stage": f"{PUBLICATION}{publication_name(run_id, run)}"}
    return RunRef(benchmark=benchmark, run=run, storage=storage), asked.changed(**own)


@app.get(RUN_ROUTE, dependencies=[Depends(may_read)])
def run_trajectories(request: Request, benchmark: str, run: str, asked: Asked) -> Response:
    """Show what a run has rolled out, by the name that its documents have."""
    if run != run_name(run):
        text = f"{run!r} is not the name of a run: letters, digits, points, dashes, underscores."
        return message_page(404, "No such run", text)

    def subject() -> Subject:
        ref = RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage)
        return of_run(ref, asked)

    return _answer(request, asked, subject)


@app.get(SKILL_ROUTE, dependencies=[Depends(may_read)])
def skill_trajectories(request: Request, benchmark: str, asked: Asked) -> Response:
    """Show the rollouts of a skill, whatever runs have stored them; without one, which skills there are."""
    if not asked.skill:
        return _explained(lambda: page(request, "rolled_out.html", found=skill_rollouts.index(benchmark, asked)))
    return _answer(request, asked, lambda: skill_rollouts.of_skill(benchmark, asked))


def _answer(request: Request, asked: TrajectoryQuery, subject: Callable[[], Subject]) -> Response:
    def answer() -> Response:
        about = subject()
        # So that an address stays what it is when a newer moment has rollouts.
        settled = asked.changed(**{choice.parameter: choice.chosen for choice in about.choices})
        if about.other is None and settled.compares:
            settled = settled.changed(show="all", sort="item_id")
        # A template's values are in memory until the garbage collector comes by, and these are large.
        shown = about._replace(items=None, types=None)
        if about.key is not None and asked.opens:
            opened = trajectory_item.opened(about, settled)
            return page(request, "trajectory.html", about=shown, asked=settled, opened=opened)
        if about.key is not None and asked.place:
            return _at_place(about, settled)
        found = None if about.key is None else trajectory_list.listed(about, settled)
        return page(request, "trajectories.html", about=shown, asked=settled, found=found)

    return _explained(answer)


def _at_place(about: Subject, asked: TrajectoryQuery) -> Response:
    """Lead to the item at a place of the list, or to the list where it is empty."""
    found = trajectory_list.at_place(about, asked)
    where = asked.address(place=0) if found is None else trajectory_list.address(asked, *found)
    return RedirectResponse(where, 303, headers=PRIVATE)


def _explained(answer: Callable[[], Response]) -> Response:
    from skillopt_airflow.store.rollout_browser import release_memory

    try:
        with AT_ONCE:
            return answer()
    except DataError as error:
        return message_page(404, "No such trajectory", str(error))
    except ObjectMissing as error:
        return message_page(404, "Nothing is stored yet", f"Come back when the run has rolled out items. {error}")
    finally:
        release_memory()
