"""`transfer_<benchmark>`: several skills under several targets and harnesses, as one matrix."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, chain, get_current_context, task

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.types import DATA_SPLITS, JsonObject, Split
from skillopt_airflow.pipeline.airflow_connections import open_run
from skillopt_airflow.pipeline.dag_ids import transfer_dag_id
from skillopt_airflow.pipeline.evaluate_dag import KINDS
from skillopt_airflow.pipeline.failures import wrong_input_fails
from skillopt_airflow.pipeline.graph import dag_of, engine_queue, rollouts
from skillopt_airflow.pipeline.tasks import PREPARING

if TYPE_CHECKING:
    from skillopt_airflow.training.transfer_plan import TransferRequest

DOC = """
Compares skills of **{benchmark}** under every one of some targets with every one of some harnesses, on the same items:
scores with 95 % intervals, the paired difference to the first skill, coverage, tokens and price. The first task checks
all that is named and logs what it may cost. The result is `matrix.md`, `matrix.json` and `matrix.parquet` below
`s3://{bucket}/{prefix}transfer/benchmark={benchmark}/`. Rollouts that are stored already are not paid again; a cell
whose target or harness fails says why, and the others have their scores.
"""


def transfer_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG: check what is named, roll every skill out in every cell, conclude."""
    doc = DOC.format(benchmark=benchmark, bucket=config.storage.bucket, prefix=config.storage.prefix)
    with dag_of(transfer_dag_id(benchmark), doc, benchmark, config, form=form(config)) as dag:
        prepared: Any = prepare.override(**engine_queue(config))(benchmark)
        run = prepared["run"]
        rolled_out = rollouts(config, "rollout", run, prepared)
        chain(rolled_out, conclude(run))
    return dag


def form(config: TrainConfig) -> dict[str, Param]:
    """Return the form of a run: what is compared where; any knob is reached through `overrides`."""
    names = {"type": "string", "minLength": 1}
    return {
        "skills": Param(
            ["seed", "champion"],
            type="array",
            items=names,
            minItems=1,
            description=f"The skills, the one that the others are compared with first: each {KINDS}. Champion and "
            "versions are those of the benchmark's own target, or of the one that overrides name as model.target.",
        ),
        "targets": Param(
            None,
            type=["array", "null"],
            items=names,
            description="Models behind the target's connection, such as openai-chat:gpt-5; the benchmark's own when "
            "empty.",
        ),
        "harnesses": Param(
            [config.model.harness],
            type="array",
            items={"type": "string", "enum": [*HARNESSES]},
            examples=[*HARNESSES],
            minItems=1,
            description="The programs that run an item.",
        ),
        "split": Param(Split.TEST.value, type="string", enum=[split.value for split in DATA_SPLITS]),
        "limit": Param(
            None,
            type=["integer", "null"],
            minimum=1,
            description="Compare on the first so many items of the split; on all of them when empty.",
        ),
        "overrides": Param(
            {},
            type=["object", "null"],
            description='Any knob by its path, such as {"model.max_turns": 10, "budget.max_usd": 5}.',
        ),
    }


@task(execution_timeout=PREPARING)
def prepare(benchmark: str) -> list[JsonObject]:
    """Check all that is named, and log the estimate; push the run's reference as XCom `run` and return the chunks."""
    from skillopt_airflow.core.config import without
    from skillopt_airflow.pipeline.triggered import cell_config, checked_form, most_mapped, new_run
    from skillopt_airflow.store.keys import transfer_name
    from skillopt_airflow.training.benchmark_settings import benchmark_config
    from skillopt_airflow.training.transfer_plan import prepare_transfer

    context = get_current_context()
    with wrong_input_fails():
        asked = checked_form(context)
        # A provider's batch API takes jobs of one target and harness.
        overrides = {} if asked["overrides"] is None else without(asked["overrides"], "model.batch")
        overrides = overrides if asked["limit"] is None else {**overrides, "data.limit": asked["limit"]}
        own = benchmark_config(benchmark)
        own = own.model_copy(update={"model": own.model.model_copy(update={"batch": False})})
        run, config = new_run(benchmark, transfer_name(context["dag_run"].run_id), {"overrides": overrides}, own)
        request = request_of(asked, str(config.model.target))
        chunks = prepare_transfer(run, config, request, partial(cell_config, benchmark, config), most_mapped())
    context["ti"].xcom_push("run", run.ref.model_dump())
    return chunks


@task(trigger_rule="all_done_min_one_success")
def conclude(run: JsonObject) -> JsonObject:
    """Store the matrix, whatever became of the rollouts; return where it is, and how much of it has a score."""
    from skillopt_airflow.training.transfer_conclusion import conclude_transfer

    opened = open_run(run)
    with wrong_input_fails():
        request = request_of(get_current_context()["params"], str(opened.config.model.target))
        matrix = conclude_transfer(opened, request)
    rows = len(list(matrix.rows()))
    return {"run": matrix.run, "measured": rows, "without_score": len(matrix.undecided)}


def request_of(form: Mapping[str, Any], target: str) -> "TransferRequest":
    """Return what the form asks for; `target` is the benchmark's own. What is named twice counts once."""
    from skillopt_airflow.training.transfer_plan import TransferRequest

    targets = form["targets"] if form["targets"] else [target]
    return TransferRequest(
        skills=tuple(dict.fromkeys(form["skills"])),
        targets=tuple(dict.fromkeys(targets)),
        harnesses=tuple(dict.fromkeys(form["harnesses"])),
        split=Split(form["split"]),
    )
