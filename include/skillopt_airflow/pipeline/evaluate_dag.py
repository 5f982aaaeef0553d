"""`evaluate_<benchmark>`: score any skill on any split, with an interval, alone or against another one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, chain, get_current_context, task

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import DATA_SPLITS, JsonObject, Split
from skillopt_airflow.pipeline import params
from skillopt_airflow.pipeline.airflow_connections import open_run
from skillopt_airflow.pipeline.dag_ids import evaluate_dag_id
from skillopt_airflow.pipeline.failures import wrong_input_fails
from skillopt_airflow.pipeline.graph import dag_of, engine_queue, evaluations
from skillopt_airflow.pipeline.tasks import PREPARING

if TYPE_CHECKING:
    from skillopt_airflow.training.scorecard import ScoringRequest

ALL_SPLITS = "all"
KINDS = "`seed`, `champion`, a version such as `v0003-0123456789ab`, an `s3://` address, or the text of a skill"

DOC = """
Scores a skill on a split of **{benchmark}**, or on all of them: its mean with a 95 % interval and, if `compare_to`
names a second skill, the paired comparison. The result is `evaluation.json` below
`s3://{bucket}/{prefix}runs/{benchmark}/`, and in the log of the last task. Rollouts that are stored already, of a
training for instance, are not paid again.
"""


def evaluate_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG: find the skills, roll them out, compare."""
    doc = DOC.format(benchmark=benchmark, bucket=config.storage.bucket, prefix=config.storage.prefix)
    with dag_of(evaluate_dag_id(benchmark), doc, benchmark, config, form=form(config)) as dag:
        prepared: Any = prepare.override(**engine_queue(config))(benchmark)
        run = prepared["run"]
        scored = evaluations(config, "rollout", run, prepared)
        chain(scored, score(run))
    return dag


def form(config: TrainConfig) -> dict[str, Param]:
    """Return the form of a run: what is scored, then the knobs of a training that matter here."""
    asked = {
        "skill": Param(
            "champion", type="string", minLength=1, format="multiline", description=f"What to score: {KINDS}."
        ),
        "compare_to": Param(
            "seed",
            type=["string", "null"],
            format="multiline",
            description=f"What to compare it with, or empty: {KINDS}.",
        ),
        "split": Param("test", type="string", enum=[*(split.value for split in DATA_SPLITS), ALL_SPLITS]),
    }
    knobs = params.form(config)
    kept = {path: knob for path, knob in knobs.items() if path.partition(".")[0] in ("evaluation", "model", "data")}
    return {**asked, **kept, "overrides": knobs["overrides"]}


@task(execution_timeout=PREPARING)
def prepare(benchmark: str) -> list[JsonObject]:
    """Settle configuration, items and skills; push the run's reference as XCom `run` and return the chunks."""
    from skillopt_airflow.pipeline.triggered import checked_form, new_run
    from skillopt_airflow.store.keys import scoring_name
    from skillopt_airflow.training.deployment_file import check_skills
    from skillopt_airflow.training.preparation import prepare_scoring
    from skillopt_airflow.training.scorecard import ScoringRequest

    context = get_current_context()
    with wrong_input_fails():
        asked = checked_form(context)
        knobs = {path: value for path, value in asked.items() if path not in ScoringRequest.FORM}
        check_skills({field: str(asked[field]) for field in ("skill", "compare_to") if asked[field]})
        run, config = new_run(benchmark, scoring_name(context["dag_run"].run_id), knobs)
        chunks = prepare_scoring(run, config, _request(asked))
    context["ti"].xcom_push("run", run.ref.model_dump())
    return chunks


@task(trigger_rule="none_failed")
def score(run: JsonObject) -> JsonObject:
    """Compute intervals and the comparison; return the whole result."""
    from skillopt_airflow.training.scorecard import scorecard

    opened = open_run(run)
    with wrong_input_fails():
        card = scorecard(opened, _request(get_current_context()["params"]))
    return card.model_dump(mode="json")


def _request(form: Mapping[str, Any]) -> "ScoringRequest":
    from skillopt_airflow.training.scorecard import ScoringRequest

    skill, other, split = (form[field] for field in ScoringRequest.FORM)
    # The one that nothing was selected on comes first.
    splits = (Split.TEST, Split.VAL, Split.TRAIN) if split == ALL_SPLITS else (Split(split),)
    return ScoringRequest(skill=skill, other="" if other is None else other, splits=splits)
