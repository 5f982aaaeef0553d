"""From a DAG run's conf to a checked, complete configuration."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import Context

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.config.train_config import Preset, TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.models import connection, server_check
from skillopt_airflow.models.providers import check_sampling
from skillopt_airflow.optimizer.judge import check_judge, judge_use
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.tasks.airflow_connections import check_data, check_engine, judge_conn_id, open_run
from skillopt_airflow.pipeline.tasks.batch_rollouts import check_batch
from skillopt_airflow.rollout.requirements import check_requirements, check_search
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config, check_allowed, preset_of, settings_at
from skillopt_airflow.training.prepare.preparation import check_priced
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef

log = logging.getLogger(__name__)

ADDED_BY_AIRFLOW = frozenset({"openlineage"})
"""Keys that Airflow's trigger operator adds to a conf if that provider is installed."""
OF_ANOTHER_TARGET = ("model.temperature", "model.max_tokens", "model.reasoning_effort")
"""Knobs whose values another target's API may refuse."""
SHORT_FORM = 12
"""Maximum fields of a form that an error lists."""
WHERE_PRESETS_ARE = "preset is a field of trainings of benchmarks that have presets/<name>.yaml in their folder"


def new_run(benchmark: str, name: str, form: Mapping[str, Any]) -> tuple[TrainingRun, TrainConfig]:
    """Return a new run and its configuration from the form. Raises SkillOptError if the form is invalid."""
    config = form_config(benchmark, form)
    run = open_run(RunRef(benchmark=benchmark, run=name, storage=config.storage))
    check_batch(config, benchmarks.load(benchmark, config.task))
    return run, config


def checked_form(context: Context) -> Mapping[str, Any]:
    """Return the DAG run's form. Raises ConfigError for a key of the conf without a Param, which Airflow ignores."""
    form = context["dag"].params
    unknown = sorted(set(context["dag_run"].conf or {}) - set(form) - ADDED_BY_AIRFLOW)
    if unknown:
        allowed = (
            f"allowed here: {', '.join(form)}"
            if len(form) <= SHORT_FORM
            else 'a knob goes into overrides, such as {"overrides": {"optimizer.learning_rate": 2}}'
        )
        hint = f"; {WHERE_PRESETS_ARE}" if "preset" in unknown else ""
        raise ConfigError(f"conf: no such key: {', '.join(unknown)}; {allowed}{hint}")
    return context["params"]


def after_decline(dag_run: Any, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a training's form; after a decline's event, it begins with the champion instead of the seed."""
    if dag_run.run_type != "asset_triggered" or form["train.init_skill"] != "seed":
        return form
    return {**form, "train.init_skill": "champion"}


def form_config(benchmark: str, form: Mapping[str, Any]) -> TrainConfig:
    """Return the run's configuration, with the connections' models where it names none.

    Raises:
        ConfigError: an unknown key, an invalid value, or a harness that can't run the benchmark's items.
        ModelConnectionError: a connection doesn't exist or names no model.
    """
    preset = chosen_preset(benchmark, form)
    own = benchmark_config(benchmark)
    layers = [] if preset is None else [preset.settings]
    config = params.run_config(own, form, *layers)
    if config.data.uri != own.data.uri:
        there = settings_at(benchmark, config.data.uri)
        log.info("settings that data.uri = %s changes: %s", config.data.uri, there)
        config = params.run_config(own, form, there, *layers)
    _check_harness_of_image(config, own)
    model, adapter = config.model, benchmarks.load(benchmark, config.task)
    check_requirements(model, adapter)
    check_search(config.search, adapter)
    check_judge(config.evaluation, adapter)
    check_data(benchmark, config)
    named = {
        "target": connection.model_name(model.target_conn_id, model.target),
        "optimizer": connection.model_name(model.optimizer_conn_id, model.optimizer),
        # A run that scores by rules only has no judge.
        "judge": None if judge_use(config.evaluation, adapter) == "rules" else _judge_model(model),
    }
    return config.model_copy(update={"model": model.model_copy(update=named)})


def cell_config(benchmark: str, config: TrainConfig, target: str, harness: HarnessName) -> TrainConfig:
    """Return a complete configuration with another target and harness; raise like `form_config`."""
    asked = read_config(config.model_dump(), {"model": {"target": target, "harness": harness}})
    _check_harness_of_image(asked, config)
    model, adapter = asked.model, benchmarks.load(benchmark, asked.task)
    check_requirements(model, adapter)
    name = connection.model_name(model.target_conn_id, target)
    named = asked.model_copy(update={"model": model.model_copy(update={"target": name})})
    check_batch(named, adapter)
    return named


def _check_harness_of_image(asked: TrainConfig, own: TrainConfig) -> None:
    """Refuse a harness that needs another image than the one that benchmark.yaml names for its harness.

    Every image supports `chat`.
    """
    needed, before = (HARNESSES[each.model.harness].image for each in (asked, own))
    is_kept = asked.sandbox.image is not None and asked.sandbox.image == own.sandbox.image
    if is_kept and needed not in (before, HARNESSES["chat"].image):
        raise ConfigError(
            f"model.harness = {asked.model.harness!r}: sandbox.image = {asked.sandbox.image!r} is for "
            f"{own.model.harness}. Name an image based on {needed} there, in a separate run"
        )


def _judge_model(model: ModelGroup) -> str:
    conn_id = judge_conn_id(model)
    of_optimizer = model.optimizer if conn_id == model.optimizer_conn_id else None
    return connection.model_name(conn_id, of_optimizer if model.judge is None else model.judge)


def chosen_preset(benchmark: str, form: Mapping[str, Any]) -> Preset | None:
    """Return the preset of a training's form; None if it names none. Raises ConfigError for an unknown preset."""
    name = form.get("preset")
    return None if name is None else preset_of(benchmark, str(name))


def night_config(benchmark: str, form: Mapping[str, Any]) -> TrainConfig:
    """Return a night's configuration, with the form's target if set; raise like `form_config`."""
    asked: Mapping[str, Any] = form["overrides"] or {}
    if form["target"] is not None:
        asked = {**asked, "model.target": form["target"]}
    return form_config(benchmark, {"overrides": asked})


def night_date(begin: datetime, config: TrainConfig) -> str:
    """Return a night's date, YYYY-MM-DD, from the start of its interval."""
    return f"{begin.astimezone(ZoneInfo(config.regate.timezone)):%Y-%m-%d}"


def base_target(benchmark: str) -> str:
    """Return the benchmark's own target."""
    model = benchmark_config(benchmark).model
    return connection.model_name(model.target_conn_id, model.target)


def publishing_ref(run: TrainingRun, target: str | None, overrides: Mapping[str, Any] | None) -> RunRef:
    """Return the reference for publishing a finished run with the overrides that this allows.

    Args:
        target: another target model, as `provider:name`; None for the run's.
        overrides: knobs by path: budget, sandbox, `model.target_conn_id` and, for another target, its sampling;
            publishing and storage are read elsewhere.

    Raises:
        ConfigError: a knob of the finished training, a forbidden value, an engine without a connection, or pods that
            can't use the run's image.
        ModelConnectionError: the connection doesn't provide the model.
        ModelUnavailable: the server doesn't answer now.
    """
    asked, is_other = overrides or {}, target not in (None, run.config.model.target)
    allowed = ("budget", "sandbox", "model.target_conn_id", *(OF_ANOTHER_TARGET if is_other else ()))
    late = {path: value for path, value in asked.items() if path in allowed or path.partition(".")[0] in allowed}
    known = {path for path in asked if path.partition(".")[0] in ("publishing", "storage")}
    if others := sorted(asked.keys() - late.keys() - known):
        raise ConfigError(
            f"overrides: the run has ended, so {', '.join(others)} cannot change; budget, sandbox, storage, "
            f"publishing and model.target_conn_id can, and for another target {', '.join(OF_ANOTHER_TARGET)}"
        )
    if target is not None:
        late["model.target"] = target
    own = benchmark_config(run.ref.benchmark)
    # The current graph publishes, and the current benchmark.yaml sets the limits.
    params.run_config(own, {"overrides": late})
    _check_image(run, own)
    config = read_config(run.config.model_dump(), nest(late))
    check_engine(config.sandbox)
    model = config.model
    name = connection.model_name(model.target_conn_id, model.target)
    late.pop("model.target", None)
    if name != run.config.model.target:
        late["model.target"] = name
        check_sampling(connection.target_upstream(model.target_conn_id, name, model.harness), model)
        server_check.check(model.target_conn_id, name)
    if not late:
        return run.ref
    named = config.model_copy(update={"model": model.model_copy(update={"target": name})})
    # Prices that were unknown at the start may be known now, or be in the overrides.
    found = run.connections.prices(named)
    settled = {role: price for role, price in run.record.prices.items() if price is not None}
    prices = {**found, **settled, "target": found["target"]}
    check_priced(config, prices)
    return run.ref.model_copy(update={"overrides": late, "prices": prices})


def _check_image(run: TrainingRun, own: TrainConfig) -> None:
    """Refuse a run whose image exists only on a Docker engine if the sandboxes are pods now."""
    if own.sandbox.engine == "kubernetes" and run.record.image.startswith("sha256:"):
        raise ConfigError(
            f"run {run.ref.run} was made with the image {run.record.image}, which exists only on its Docker engine. "
            "sandbox.engine is kubernetes now: set it to docker in the benchmark's benchmark.yaml until the run is "
            "published, or trigger a new training"
        )


def publishing_rules(run: TrainingRun, asked: Mapping[str, Any]) -> JsonObject:
    """Return the publishing knobs, by path, that the form and its overrides change.

    Raises:
        ConfigError: an unknown key, an invalid or fixed value, or no approval where the run or benchmark requires it.
    """
    fields, late = (
        {path: value for path, value in knobs.items() if path.partition(".")[0] == "publishing"}
        for knobs in (asked, asked["overrides"] or {})
    )
    publishing = params.run_config(run.config, {**fields, "overrides": late}).publishing
    # The benchmark may require approval now, though it didn't when the run began.
    own = benchmark_config(run.ref.benchmark)
    check_allowed(own.model_copy(update={"publishing": publishing}), own)
    rules, settled = (knobs.model_dump(mode="json") for knobs in (publishing, run.config.publishing))
    return {f"publishing.{key}": value for key, value in rules.items() if value != settled[key]}
