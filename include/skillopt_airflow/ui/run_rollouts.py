"""The rollouts of a run: of one of its stages, under one of its skills."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skillopt_airflow.core.types import Split
from skillopt_airflow.training.matrix_cells import in_cell
from skillopt_airflow.training.run import OF_ONE_RUN, TrainingRun
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.buckets import KeptConnections
from skillopt_airflow.ui.trajectory_query import TrajectoryQuery
from skillopt_airflow.ui.trajectory_subject import Choice, Subject, others

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.rollout_table import RolloutKey
    from skillopt_airflow.training.rollout_stages import Planned, Stage

GATED = ("evaluate", "screen", "confirm")
"""Stages whose skill has to beat another one."""


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
    rival = stages.current_before(run, stage.moment) if stage.name in GATED else ""
    return _with_skills(run, begun, stage, asked)._replace(rival=rival or "")


def _with_skills(run: TrainingRun, begun: Subject, stage: "Stage", asked: TrajectoryQuery) -> Subject:
    """Return the subject with what is rolled out of a split, under which skill, and beside which one."""
    from skillopt_airflow.training.rollout_stages import skills_of

    split = next((one for one in stage.splits if one == asked.split), next(iter(stage.splits)))
    plan = stage.splits[split]
    labels = dict(skills_of(run, stage.moment, stage.name, plan.skills))
    skill = asked.skill if asked.skill in labels else _first(run, plan, labels)
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


def _first(run: TrainingRun, plan: "Planned", labels: Mapping[str, str]) -> str:
    """Return the candidate that a moment with several of them chose, or else the first skill of its plan."""
    chosen = [name for name in labels if name.endswith("/candidate_skill.md") and "/proposals/" not in name]
    return chosen[0] if chosen and "/proposals/" in plan.skills[0] else plan.skills[0]


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
