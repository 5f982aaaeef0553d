"""Before the first model call: settle the configuration, check what can be checked, store the items."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillopt_airflow import benchmarks
from skillopt_airflow.core.budget import Prices, unpriced
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import JsonObject, Split
from skillopt_airflow.models import connection
from skillopt_airflow.models.prices import price_of
from skillopt_airflow.models.providers import check_sampling
from skillopt_airflow.pipeline import params
from skillopt_airflow.pipeline.batch import check_batch
from skillopt_airflow.pipeline.connections import check_connection, connected, object_store, published_skills, s3_client
from skillopt_airflow.quality.sizes import evaluation_needs, training_needs
from skillopt_airflow.rollout.requirements import check_requirements
from skillopt_airflow.sandbox.docker_connection import image_digest
from skillopt_airflow.sandbox.pod import pinned
from skillopt_airflow.store.files import DataFiles
from skillopt_airflow.store.keys import run_name, scoring_name
from skillopt_airflow.training.ends import opened, store_seed
from skillopt_airflow.training.map_limits import check_mappable, scoring_demand, training_demands
from skillopt_airflow.training.preparation import (
    check_affordable,
    check_same_inputs,
    check_unchanged,
    log_size,
    read_items,
    read_seed,
    settle,
    store_files,
)
from skillopt_airflow.training.quality import failure_kept
from skillopt_airflow.training.run import RunRef, TrainingRun
from skillopt_airflow.training.scorecard import Question, find_skill, scoring_plan

if TYPE_CHECKING:
    from airflow.sdk import Context

ADDED_BY_AIRFLOW = frozenset({"openlineage"})
"""What Airflow's own operator adds to the conf of a run that it triggers, where that provider is installed."""
SHORT_FORM = 12
"""Fields that an error names, all of them."""


def prepare_run(benchmark: str, dag_run_id: str, form: Mapping[str, Any]) -> TrainingRun:
    """Everything a run needs, stored, or nothing but what is wrong with its data.

    Args:
        benchmark: the benchmark's name.
        dag_run_id: Airflow's id of the run.
        form: the run's Params.

    Raises:
        SkillOptError: of the kind that says what is wrong; of the run nothing else has been stored then.
    """
    config = configured(benchmark, form)
    run = connected(RunRef(benchmark=benchmark, run=run_name(dag_run_id), storage=config.storage))
    check_batch(config, run.benchmark)
    # A bucket that is missing or closed shows here, not after the training.
    run.store.list_keys(run.keys.folder)
    object_store(config.storage, config.storage.artifact_bucket).list_keys(
        f"{config.storage.prefix}skills/{benchmark}/"
    )
    check_unchanged(run, config)
    seed = read_seed(benchmarks.seed_skill(benchmark))
    folder = benchmarks.folder(benchmark)
    client = s3_client(config.storage)
    with failure_kept(run):
        items, quality = read_items(config.data, folder, run.benchmark, client, training_needs(config.evaluation))
    prices = connected_prices(config)
    check_affordable(config, items, prices)
    check_mappable(config, training_demands(config, {split: len(rows) for split, rows in items.items()}), most_mapped())
    image = reachable(config)
    items = store_files(run, items, DataFiles.of(config.data, folder, client))
    check_same_inputs(run, items, opened(seed, config), image)
    settle(run, config, items, quality, image, prices)
    store_seed(run, opened(seed, config))
    log_size(run)
    return run


def prepare_scoring(benchmark: str, dag_run_id: str, form: Mapping[str, Any]) -> tuple[TrainingRun, list[JsonObject]]:
    """A run of the evaluation DAG with its skills and items stored; returns the chunks of its rollouts.

    Args:
        benchmark: the benchmark's name.
        dag_run_id: Airflow's id of the run.
        form: the run's Params.

    Raises:
        SkillOptError: of the kind that says what is wrong.
    """
    config = configured(benchmark, {path: value for path, value in form.items() if path not in Question.FORM})
    run = connected(RunRef(benchmark=benchmark, run=scoring_name(dag_run_id), storage=config.storage))
    check_batch(config, run.benchmark)
    question, client = question_of(form), s3_client(config.storage)
    seed = read_seed(benchmarks.seed_skill(benchmark))
    artifacts = published_skills(config.storage, benchmark, str(config.model.target))
    asked = [source for source in (question.skill, question.other) if source]
    skills = [find_skill(source, seed, artifacts, client) for source in asked]
    folder = benchmarks.folder(benchmark)
    with failure_kept(run):
        items, quality = read_items(config.data, folder, run.benchmark, client, [*evaluation_needs(config.evaluation)])
    image = reachable(config)
    items = store_files(run, items, DataFiles.of(config.data, folder, client))
    settle(run, config, items, quality, image, connected_prices(config))
    if not config.model.batch:
        demand = scoring_demand(config, len(set(skills)), len(run.items(question.split)))
        check_mappable(config, [demand], most_mapped())
    return run, scoring_plan(run, question, skills)


def question_of(form: Mapping[str, Any]) -> Question:
    """What the form of the evaluation DAG asks."""
    skill, other, split = (form[field] for field in Question.FORM)
    return Question(skill=skill, other="" if other is None else other, split=Split(split))


def checked_form(context: "Context") -> Mapping[str, Any]:
    """The form of the DAG run, after a look at what it was triggered with.

    Airflow passes over what is no Param of the DAG; a run must not.

    Raises:
        ConfigError: naming the keys that the DAG has no field for, and those of a short form.
    """
    conf, form = context["dag_run"].conf, context["dag"].params
    unknown = sorted(set({} if conf is None else conf) - set(form) - ADDED_BY_AIRFLOW)
    if unknown:
        allowed = (
            f"allowed here: {', '.join(form)}"
            if len(form) <= SHORT_FORM
            else 'a knob goes into overrides, such as {"overrides": {"optimizer.learning_rate": 2}}'
        )
        raise ConfigError(f"conf: no such key: {', '.join(unknown)}; {allowed}")
    return context["params"]


def configured(benchmark: str, form: Mapping[str, Any]) -> TrainConfig:
    """The run's configuration, with the models of the connections where it leaves them open.

    Raises:
        ConfigError: a key or value that the form or the configuration does not have, or a harness that cannot run
            the benchmark's items.
        ModelConnectionError: a connection that is not there or names no model.
    """
    config = params.run_config(params.benchmark_config(benchmark), form)
    model = config.model
    check_requirements(model, benchmarks.load(benchmark))
    named = {
        "target": connection.model_name(model.target_conn_id, model.target),
        "optimizer": connection.model_name(model.optimizer_conn_id, model.optimizer),
    }
    return config.model_copy(update={"model": model.model_copy(update=named)})


def reopened(run: TrainingRun, target: str | None, overrides: Mapping[str, Any] | None) -> RunRef:
    """The reference of a finished run that is to be published, under the knobs that this may change.

    Args:
        run: the run.
        target: another target model, as `provider:name`, or None for the run's own.
        overrides: knobs by path: budget, sandbox, and `model.target_conn_id`; those of publishing and storage are read
            elsewhere.

    Raises:
        ConfigError: a knob of the training, which has been, one with a value that is not allowed, or an engine of which
            there is no connection.
        ModelConnectionError: the connection does not lead to the model.
    """
    asked = {} if overrides is None else dict(overrides)
    late = {path: value for path, value in asked.items() if path.partition(".")[0] in ("budget", "sandbox")}
    late |= {path: value for path, value in asked.items() if path == "model.target_conn_id"}
    known = {path for path in asked if path.partition(".")[0] in ("publishing", "storage")}
    if others := sorted(asked.keys() - late.keys() - known):
        raise ConfigError(f"overrides: the run has ended, so {', '.join(others)} cannot change; budget and sandbox can")
    if target is not None:
        late["model.target"] = target
    config = params.run_config(run.config, {"overrides": late})
    _check_engine(config)
    model = config.model
    name = connection.model_name(model.target_conn_id, model.target)
    late.pop("model.target", None)
    if name != run.config.model.target:
        late["model.target"] = name
        check_sampling(connection.target_upstream(model.target_conn_id, name, model.harness), model)
        connection.check(model.target_conn_id, name)
    if not late:
        return run.ref
    price = price_of(name, config.budget.prices, connection.host(model.target_conn_id))
    prices: Prices = {**run.record.prices, "target": price}
    if problem := unpriced(prices, config):
        raise ConfigError(problem)
    return run.ref.model_copy(update={"overrides": late, "prices": prices})


def most_mapped() -> int:
    """How many tasks Airflow makes of a list."""
    from airflow.sdk.configuration import conf

    return int(conf.getint("core", "max_map_length", fallback=1024))


def connected_prices(config: TrainConfig) -> Prices:
    """What the models of the run's connections cost, as far as it is known."""
    model, overrides = config.model, config.budget.prices
    return {
        "target": price_of(str(model.target), overrides, connection.host(model.target_conn_id)),
        "optimizer": price_of(str(model.optimizer), overrides, connection.host(model.optimizer_conn_id)),
    }


def reachable(config: TrainConfig) -> str:
    """The image's digest, after target, optimizer and engine have shown that they are there."""
    model = config.model
    upstream = connection.target_upstream(model.target_conn_id, model.target, model.harness)
    check_sampling(upstream, model)
    connection.optimizer_model(model.optimizer_conn_id, model.optimizer)
    for conn_id, name in {model.target_conn_id: model.target, model.optimizer_conn_id: model.optimizer}.items():
        connection.check(conn_id, name)
    connection.check_harness(upstream, model.harness)
    if config.sandbox.engine == "kubernetes":
        return pinned(config.image)
    _check_engine(config)
    return image_digest(config.image, config.sandbox)


def _check_engine(config: TrainConfig) -> None:
    if config.sandbox.engine == "docker" and config.sandbox.docker_conn_id is not None:
        create = "type 'docker' and the engine's address, such as tcp://10.0.0.5:2376, as host"
        check_connection("sandbox.docker_conn_id", config.sandbox.docker_conn_id, create)
