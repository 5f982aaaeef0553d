"""`publish_<benchmark>` and `rollback_<benchmark>`: gate, approval, and the alias."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, Context, Param, TaskGroup, chain, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.service_groups import PublishingGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import Conflict, DataError, ObjectMissing
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.graph import dag_of, rollouts
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections, open_run
from skillopt_airflow.pipeline.tasks.dag_ids import prefixed, publish_dag_id, rollback_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.task_errors import fail_on_wrong_input
from skillopt_airflow.store.keys import publication_name, run_name
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config, check_allowed
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef

if TYPE_CHECKING:
    from skillopt_airflow.store.aliases import Alias
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.training.champion.approval import RollbackRequest

PUBLISH_DOC = """
Publishes the best skill of a finished run of `{trained}`. It and the current champion run on the split publish,
else test. The publish gate compares them, a person approves if `publishing.approval` is set, and the alias `champion`
moves. A training ends with the same tasks. Use this DAG to publish later, under other rules, or for another model:
with `target`, everything is measured on that model and the champion is that model's.
"""

ROLLBACK_DOC = """
Moves the alias `champion` of **{benchmark}** to an earlier version and records the reason in its history.
"""


def champion_asset(benchmark: str) -> Asset:
    """Return the asset of the champion's moves; events have version, sha256, previous, reason and scores."""
    # By name only: a URI would load all schemes' providers whenever a DAG file is parsed.
    return Asset(name=prefixed(f"skillopt_{benchmark}_champion"))


def publish_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG: open a finished run, then publish as a training does at its end."""
    doc = PUBLISH_DOC.format(trained=train_dag_id(benchmark))
    with dag_of(publish_dag_id(benchmark), doc, benchmark, config, form=publish_form(config)) as dag:
        publication(benchmark, config, open_finished(benchmark))
    return dag


def rollback_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG: check the request, get approval, move the alias."""
    knobs = params.form(config, paths=("model.target",))
    asked = {
        "version": Param(
            type="string", minLength=1, description="Version to roll back to, such as `v0003-0123456789ab`."
        ),
        "reason": Param(type="string", minLength=1, format="multiline", description="Reason for the alias's history."),
        "leaving": Param(
            None,
            type=["string", "null"],
            description="Expected current champion; the run fails if it is another one. For automation.",
        ),
        "approval": Param(True, type="boolean", description="Require approval by a person."),
        "model.target": knobs["model.target"],
        "overrides": knobs["overrides"],
    }
    doc = ROLLBACK_DOC.format(benchmark=benchmark)
    with dag_of(rollback_dag_id(benchmark), doc, benchmark, config, form=asked) as dag:
        request: Any = request_rollback(benchmark)
        approve = RollbackApproval(
            task_id="approve",
            subject=f"Roll back the champion of {benchmark}?",
            rules=config.publishing,
            reference=request,
        )
        chain(approve, move_back.override(outlets=[champion_asset(benchmark)])(benchmark, request))
    return dag


def publication(benchmark: str, config: TrainConfig, run: Any) -> TaskGroup:
    """Return the tasks that publish the best skill of a run: measure, gate, approve, publish."""
    with TaskGroup("publication") as group:
        planned = plan_publication(run)
        approve = PublicationApproval(
            task_id="approve", subject=f"Publish a new champion of {benchmark}?", rules=config.publishing, reference=run
        )
        published = publish.override(outlets=[champion_asset(benchmark)])(benchmark, run)
        chain(planned, rollouts(config, "measure", run, planned), gate_publication(run), approve, published)
    return group


def publish_form(config: TrainConfig) -> dict[str, Param]:
    """Return the fields for the run, the model, the rules of publishing, and an unusual storage."""
    asked = {
        "run": Param(
            type="string", minLength=1, description="Training to publish: its Airflow run ID or its name in the report."
        ),
        "target": Param(
            None, type=["string", "null"], description="Another target model than the run's; the gate measures on it."
        ),
    }
    return asked | params.form(config, paths=("publishing.gate_policy", "publishing.samples", "publishing.approval"))


class Approval(ApprovalOperator):
    """Asks a person in Airflow's UI if required; rejects without an answer in time.

    :param rules: approvers, and the time limit.
    :param reference: small reference to the request. (templated)
    """

    template_fields = (*ApprovalOperator.template_fields, "reference")

    def __init__(self, *, rules: PublishingGroup, reference: Any, **kwargs: Any) -> None:
        super().__init__(
            defaults=ApprovalOperator.REJECT,
            response_timeout=timedelta(hours=rules.approval_hours),
            assigned_users=[{"id": user, "name": user} for user in rules.approvers],
            execution_timeout=None,
            **kwargs,
        )
        self.hours = rules.approval_hours
        self.reference = reference

    def wanted(self, context: Context) -> str:
        """Return the page for the person; empty if no approval is required."""
        raise NotImplementedError

    def rejected(self, why: str) -> None:
        """Act on a rejection by a person or by the time limit."""

    def execute(self, context: Context) -> Any:
        body = self.wanted(context)
        if not body:
            self.log.info("No approval required")
            return None
        self.body = body
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        try:
            return super().execute_complete(context, event)
        except DownstreamTasksSkipped:
            why = f"it was not approved within {self.hours:g} hours" if event.get("timedout") else "it was not approved"
            self.log.info("Rejected: %s", why)
            self.rejected(why)
            raise


class PublicationApproval(Approval):
    """Approval of a publication; `reference` is the run's."""

    def wanted(self, context: Context) -> str:
        from skillopt_airflow.training.champion.approval import publication_body
        from skillopt_airflow.training.champion.publication import PublicationPlan

        run = open_run(self.reference)
        name = _publication(context, run)
        contest = run.store.get_model(run.keys.publication(name).contest, PublicationPlan)
        return publication_body(run, name) if contest.rules.approval else ""

    def rejected(self, why: str) -> None:
        _report_withheld(open_run(self.reference), why)


class RollbackApproval(Approval):
    """Approval of a rollback; `reference` is the request's."""

    def wanted(self, context: Context) -> str:
        from skillopt_airflow.training.champion.approval import describe

        artifacts, request = _rollback(self.reference)
        return describe(artifacts, request) if request.approval else ""


@task
def open_finished(benchmark: str) -> JsonObject:
    """Return the reference of the form's run, with the form's target and rules."""
    from skillopt_airflow.pipeline.tasks.triggered import checked_form, publishing_ref, publishing_rules

    with fail_on_wrong_input():
        asked = checked_form(get_current_context())
        storage = params.run_config(benchmark_config(benchmark), asked).storage
        ref = RunRef(benchmark=benchmark, run=run_name(asked["run"]), storage=storage)
        run = open_run(ref)
        try:
            run.state(run.timeline[-1])
        except ObjectMissing as error:
            raise DataError(f"run = {asked['run']}: not a finished training of {benchmark}: {error}") from None
        ref = publishing_ref(run, asked["target"], asked["overrides"])
        ref = ref.model_copy(update={"overrides": ref.overrides | publishing_rules(run, asked)})
    return ref.model_dump(mode="json")


@task(trigger_rule="none_failed")
def plan_publication(run: JsonObject) -> list[JsonObject]:
    """Plan the comparison; return the chunks of candidate and champion."""
    from skillopt_airflow.training.champion.publication import plan_publication

    opened = open_run(run)
    name = _publication(get_current_context(), opened)
    # The run's rules, from its training or `open_finished`, not from today's benchmark.yaml.
    return plan_publication(opened, opened.published, name, opened.config.publishing)


@task(trigger_rule="none_failed")
def gate_publication(run: JsonObject) -> None:
    """Skip the rest unless the candidate passes the publish gate."""
    from skillopt_airflow.training.champion.publication import gate_publication

    opened = open_run(run)
    with fail_on_wrong_input():
        withheld = gate_publication(opened, _publication(get_current_context(), opened))
    if withheld:
        _report_withheld(opened, withheld)
        raise AirflowSkipException(f"nothing is published: {withheld}")


@task
def publish(benchmark: str, run: JsonObject) -> JsonObject:
    """Store the best skill as an immutable version, and move the alias to it."""
    from skillopt_airflow.training.champion.publication import publish_best
    from skillopt_airflow.training.report.reporting import write_report

    opened, context = open_run(run), get_current_context()
    artifacts = opened.published
    try:
        published = publish_best(opened, artifacts, _publication(context, opened))
    except DataError as error:
        raise AirflowFailException(str(error)) from None
    except Conflict as error:
        # A retry would meet the same champion, without a comparison.
        target = f" and target = {opened.config.model.target}" if opened.for_another_model else ""
        beaten = f"{error}: trigger {publish_dag_id(benchmark)} with run = {opened.ref.run}{target}"
        _report_withheld(opened, beaten)
        raise AirflowFailException(beaten) from None
    if not opened.for_another_model:
        write_report(opened, published)
    champion = artifacts.champion.read()
    if champion is not None:
        emit_champion_event(context, benchmark, artifacts, champion)
    return published.model_dump()


@task
def request_rollback(benchmark: str) -> JsonObject:
    """Check the request; return it with the current champion."""
    from skillopt_airflow.models import connection
    from skillopt_airflow.pipeline.tasks.triggered import checked_form
    from skillopt_airflow.training.champion.approval import rollback_request

    context = get_current_context()
    with fail_on_wrong_input():
        asked = checked_form(context)
        own = benchmark_config(benchmark)
        config = params.run_config(own, asked)
        if not asked["approval"]:
            unasked = config.publishing.model_copy(update={"approval": False})
            check_allowed(config.model_copy(update={"publishing": unasked}), own)
        target = connection.model_name(config.model.target_conn_id, config.model.target)
        artifacts = published_skills(AirflowConnections(), config.storage, benchmark, target)
        name, version = run_name(context["run_id"]), asked["version"]
        request = rollback_request(artifacts, name, version, asked["reason"], asked["approval"], asked["leaving"])
    return {
        "benchmark": benchmark,
        "target": target,
        "storage": config.storage.model_dump(),
        "request": request.model_dump(mode="json"),
    }


@task
def move_back(benchmark: str, reference: JsonObject) -> JsonObject:
    from skillopt_airflow.training.champion.approval import roll_back

    artifacts, request = _rollback(reference)
    with fail_on_wrong_input():
        alias = roll_back(artifacts, request)
    emit_champion_event(get_current_context(), benchmark, artifacts, alias)
    return alias.model_dump(mode="json")


def _rollback(reference: JsonObject) -> "tuple[ArtifactStore, RollbackRequest]":
    from skillopt_airflow.training.champion.approval import RollbackRequest

    storage = StorageGroup.model_validate(reference["storage"])
    artifacts = published_skills(AirflowConnections(), storage, str(reference["benchmark"]), str(reference["target"]))
    return artifacts, RollbackRequest.model_validate(reference["request"])


def emit_champion_event(context: Context, benchmark: str, artifacts: "ArtifactStore", champion: "Alias") -> None:
    """Emit the champion asset's event."""
    manifest = artifacts.read(champion.version).manifest
    context["outlet_events"][champion_asset(benchmark)].extra = {
        "benchmark": benchmark,
        "target": manifest.target,
        "scores": manifest.best_scores.model_dump(mode="json"),
        "publish_gate": manifest.model_dump(mode="json")["publish_gate"],
        **champion.model_dump(mode="json", include={"version", "sha256", "previous", "reason", "run"}),
    }


def _publication(context: Context, run: TrainingRun) -> str:
    """Return the name of the DAG run's publication of a run."""
    if context["dag"].dag_id == publish_dag_id(run.ref.benchmark):
        return publication_name(context["run_id"], run.ref.run)
    return run_name(context["run_id"])


def _report_withheld(run: TrainingRun, withheld: str) -> None:
    from skillopt_airflow.training.report.reporting import write_report

    if not run.for_another_model:
        write_report(run, withheld=withheld)
