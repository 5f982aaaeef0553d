"""`evaluate_<benchmark>`: skills under every target with every harness on every split, as one matrix."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, chain, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import GATE_POLICIES
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import DATA_SPLITS, JsonObject, Split
from skillopt_airflow.pipeline.graph import cell_rollouts, dag_of, engine_queue
from skillopt_airflow.pipeline.tasks.airflow_connections import open_run
from skillopt_airflow.pipeline.tasks.dag_ids import evaluate_dag_id
from skillopt_airflow.pipeline.tasks.stages import PREPARING
from skillopt_airflow.pipeline.tasks.task_errors import fail_on_wrong_input
from skillopt_airflow.store.keys import scoring_name

if TYPE_CHECKING:
    from skillopt_airflow.core.run.skill_matrix import MatrixRequest

DOC = """
Runs skills of **{benchmark}** under every named target with every named harness, on the same items: scores with 95%
intervals, the paired difference to the first skill, coverage, tokens and price. If `policy` is set, the matrix also
answers whether each other skill is better than the first one; with `fail_if_not_better`, the run fails if one isn't.
The result is `matrix.md`, `matrix.json` and `matrix.parquet` in
`s3://{bucket}/{prefix}evaluations/benchmark={benchmark}/`, and in the tab *Report*. Stored rollouts, such as those of a
training, aren't paid again. If a target or harness fails, the others still have their scores.
"""


def evaluate_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG: check the request, run every skill in every cell, conclude."""
    doc = DOC.format(benchmark=benchmark, bucket=config.storage.bucket, prefix=config.storage.prefix)
    with dag_of(evaluate_dag_id(benchmark), doc, benchmark, config, form=form(config)) as dag:
        prepared: Any = prepare.override(**engine_queue(config))(benchmark)
        chain(cell_rollouts(config, "rollout", prepared), conclude(prepared["runs"], prepared["skills"]))
    return dag


def form(config: TrainConfig) -> dict[str, Param]:
    """Return the form of a run."""
    names = {"type": "string", "minLength": 1}
    return {
        "skills": Param(
            ["seed", "champion"],
            type="array",
            items=names,
            minItems=1,
            description="The skills; the others are compared with the first one. Each is `seed`, `champion`, a version "
            "such as `v0003-0123456789ab`, an `s3://` URL, or the text of a skill. Champion and versions are those of "
            "the benchmark's target, or of model.target in overrides.",
        ),
        "targets": Param(
            None,
            type=["array", "null"],
            items=names,
            description="Models behind the target's connection, such as openai-chat:gpt-5. Default: the benchmark's.",
        ),
        "harnesses": Param(
            [config.model.harness],
            type="array",
            items={"type": "string", "enum": [*HARNESSES]},
            examples=[*HARNESSES],
            minItems=1,
            description="The programs that run an item.",
        ),
        "splits": Param(
            [Split.TEST.value],
            type="array",
            items={"type": "string", "enum": [split.value for split in DATA_SPLITS]},
            examples=[split.value for split in DATA_SPLITS],
            minItems=1,
            description="The splits whose items the skills run on.",
        ),
        "policy": Param(
            None,
            type=["string", "null"],
            enum=[None, *GATE_POLICIES],
            description="The gate policy that answers whether each other skill is better than the first one, at "
            "evaluation.gate_alpha. Default: no verdict.",
        ),
        "fail_if_not_better": Param(
            False,
            type="boolean",
            description="Fail the run unless each other skill is better than the first one in every cell. Needs a "
            "policy.",
        ),
        "overrides": Param(
            {},
            type=["object", "null"],
            description='Any knob by its path, such as {"model.max_turns": 10, "data.limit": 50}.',
        ),
    }


@task(execution_timeout=PREPARING)
def prepare(benchmark: str) -> list[Any]:
    """Store a run per cell; push XComs `runs` and `skills`, and return the input of the mapped tasks."""
    from skillopt_airflow.pipeline.tasks.triggered import cell_config, checked_form, new_run
    from skillopt_airflow.training.report.matrix import prepare_matrix

    context = get_current_context()
    with fail_on_wrong_input():
        asked = checked_form(context)
        name, overrides = scoring_name(context["dag_run"].run_id), {"overrides": asked["overrides"]}
        run, config = new_run(benchmark, name, overrides)
        request = request_of(asked, str(config.model.target))
        plan = prepare_matrix(run, config, request, partial(cell_config, benchmark, config))
    context["ti"].xcom_push("runs", [one.ref.model_dump() for one in plan.runs])
    context["ti"].xcom_push("skills", [skill.model_dump() for skill in plan.skills])
    return plan.chunks if config.model.batch else plan.alternating


@task(trigger_rule="all_done_min_one_success")
def conclude(runs: Sequence[JsonObject], skills: Sequence[JsonObject]) -> JsonObject:
    """Store the matrix, even if rollouts failed; return its run, its number of scores, and skills that aren't better.

    Raises AirflowFailException if a skill isn't better than the first one, and the form asks to fail then.
    """
    from skillopt_airflow.core.run.skill_matrix import ComparedSkill
    from skillopt_airflow.training.report.matrix import conclude_matrix

    asked = get_current_context()["params"]
    with fail_on_wrong_input():
        splits = tuple(dict.fromkeys(map(Split, asked["splits"])))
        compared = [ComparedSkill.model_validate(skill) for skill in skills]
        matrix = conclude_matrix([open_run(run) for run in runs], compared, splits, asked["policy"])
    worse = [
        f"{row.skill.source} ({row.cell.target}, {row.cell.harness}, {row.cell.split})" for row in matrix.not_better
    ]
    if asked["fail_if_not_better"] and worse:
        raise AirflowFailException(f"not better than {matrix.skills[0].source}: {'; '.join(worse)}")
    return {
        "run": matrix.run,
        "measured": len(list(matrix.rows())),
        "without_score": len(matrix.undecided),
        "not_better": [*worse],
    }


def request_of(form: Mapping[str, Any], target: str) -> "MatrixRequest":
    """Return the form's request; `target` is the benchmark's own. A value that occurs twice counts once.

    Raises ConfigError if a verdict is asked for without a policy or without a second skill.
    """
    from skillopt_airflow.core.run.skill_matrix import MatrixRequest

    policy, skills = form["policy"], tuple(dict.fromkeys(form["skills"]))
    if form["fail_if_not_better"] and policy is None:
        raise ConfigError(f"fail_if_not_better = true: no policy is named. Set policy to {' or '.join(GATE_POLICIES)}")
    if policy is not None and len(skills) == 1:
        raise ConfigError(f"policy = {policy}: there is nothing to compare with. Name at least two skills")
    return MatrixRequest(
        skills=skills,
        targets=tuple(dict.fromkeys(form["targets"] if form["targets"] else [target])),
        harnesses=tuple(dict.fromkeys(form["harnesses"])),
        splits=tuple(dict.fromkeys(form["splits"])),
    )
