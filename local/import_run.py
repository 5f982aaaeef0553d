"""`make import`: a finished run of the reference implementation becomes a run in the platform's object store."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from local.environment import environment
from local.home import Home
from local.shell_commands import lost_connections, typed
from local.try_benchmark import knobs_of
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline.dag_ids import evaluate_dag_id, publish_dag_id
from skillopt_airflow.training.imported import ImportedRun, ReferenceRun, import_run, is_imported

if TYPE_CHECKING:
    from skillopt_airflow.training.run import TrainingRun

EPOCHS = "train.num_epochs"


def run(home: Home, folder: Path, benchmark: str = "", settings: Sequence[str] = ()) -> int:
    """Import the folder, and print what came of it and what to do with it.

    Args:
        home: the platform's.
        folder: what the reference implementation left of the run.
        benchmark: empty for the one that the run names.
        settings: knobs as KEY=VALUE, the value in YAML.

    Raises:
        SkillOptError: of the kind that says what is wrong.
    """
    reference = ReferenceRun(folder)
    benchmark = _benchmark(reference, benchmark)
    print(f"Read {folder}: steps {len(reference.steps)}, skills {len(reference.skills)}", flush=True)
    os.environ.update(lost_connections(home))
    os.environ.update(environment(home.root) | {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"})
    from skillopt_airflow.pipeline.params import form
    from skillopt_airflow.pipeline.triggered import new_run
    from skillopt_airflow.training.benchmark_settings import benchmark_config

    own = benchmark_config(benchmark)
    fields = {name: field.value for name, field in form(own).items()}
    named = knobs_of(settings)
    knobs = beneath(reference.overrides(own), named)
    # No graph has to have room for epochs that are over.
    epochs = {EPOCHS: knobs.pop(EPOCHS)} if EPOCHS in knobs else {}
    made, config = new_run(benchmark, reference.name, fields | {"overrides": knobs})
    config = TrainConfig.from_layers(config.model_dump(), nest(epochs))
    if not is_imported(made):
        print(f"Checking the items of data.uri = {config.data.uri}, the models and the sandbox image ...", flush=True)
    is_new = import_run(made, config, reference, named)
    tell(made, reference.document(0, own), typed(home.bin / "airflow"), is_new=is_new)
    return 0


def beneath(taken: JsonObject, named: JsonObject) -> JsonObject:
    """Return a run's settings beneath those that the user names, without the part of its split that these replace."""
    replaced = set()
    if named.get("data.split_mode") == "manifest":
        replaced.add("data.split_manifest")
    if named.get("data.split_manifest") is not None:
        replaced.add("data.split_mode")
    return {key: value for key, value in taken.items() if key not in replaced} | named


def tell(made: "TrainingRun", document: ImportedRun, airflow: str, *, is_new: bool) -> None:
    """Print what came of an import, and what to do with the run by Airflow's command."""
    benchmark, name = made.ref.benchmark, made.ref.run
    skill = made.store.address(made.keys.best_skill)
    print(f"{'Imported' if is_new else 'It was imported before'}: run {name} in {made.store.address(made.keys.folder)}")
    taken = ", ".join(f"{key}={value}" for key, value in document.overrides.items())
    print(f"Settings that were taken: {taken if taken else 'none'}")
    print(f"Settings that were not taken: {', '.join(document.not_taken) if document.not_taken else 'none'}")
    measure, publish = (f"{airflow} dags trigger {name_of(benchmark)}" for name_of in (evaluate_dag_id, publish_dag_id))
    print(f"""Measure its best skill:  {measure} --conf '{{"skill": "{skill}"}}'""")
    print(f"""Publish it, by the gate: {publish} --conf '{{"run": "{name}"}}'""")


def _benchmark(reference: ReferenceRun, asked: str) -> str:
    name = asked if asked else reference.about.env
    if name not in benchmarks.names():
        raise ConfigError(
            f"benchmark {name}: there is none of that name here, only {', '.join(benchmarks.names())}; say which one "
            "the run belongs to with BENCHMARK=NAME"
        )
    return name
