"""`make try`: a few items of a benchmark with the real harness and gateway, without Airflow, S3, or a database."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

from local import engine, image
from local.home import Home
from local.served import served
from local.standin.known_items import s3_client
from local.standin.server import StandInServer
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.optimizer.judge import check_judge
from skillopt_airflow.rollout.requirements import check_requirements, check_search
from skillopt_airflow.sandbox.container_loop import Runtime, run_workload
from skillopt_airflow.sandbox.rollout_process import ProcessRuntime
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.training.run.run_documents import source_corpus
from skillopt_airflow.training.trial import (
    TargetModel,
    Trial,
    TrialDisplay,
    connected_target,
    first_items,
    skill_text,
    trial_config,
)


def run(
    home: Home, benchmark: str, count: int, split: Split, skill_file: Path | None = None, settings: Sequence[str] = ()
) -> int:
    """Run the first items of a split and show the rollouts; return 0 if all have scores. `settings` are KEY=VALUE."""
    display = TrialDisplay()
    config = trial_config(benchmark, settings)
    # A trial stores nothing, and a remote engine would exchange files through the bucket.
    config = config.model_copy(update={"sandbox": config.sandbox.model_copy(update={"conn_id": None})})
    adapter = benchmarks.load(benchmark, config.task)
    check_requirements(config.model, adapter)
    check_search(config.search, adapter)
    check_judge(config.evaluation, adapter)
    skill = skill_text(benchmark, skill_file)
    client = s3_client(config)
    items = first_items(benchmark, adapter, config, split, count, client)
    with target_model(config) as target:
        trial = Trial(
            benchmark=benchmark,
            config=config,
            adapter=adapter,
            skill=skill,
            items=items,
            upstream=target.upstream,
            data=DataFiles.of(config.data, benchmarks.folder(benchmark), client),
            labels={"store": str(home.root), "dag_run": f"try-{os.getpid()}"},
            on_row=display.show,
            corpus=source_corpus(benchmark, config, client),
        )
        source = skill_file if skill_file is not None else benchmarks.seed_skill(benchmark)
        display.begin(trial, split, source, target.name)
        stopped = threading.Event()
        with display.progress():
            run_workload(trial, lambda folder: open_sandbox(home.root, trial, folder, stopped, display), stopped)
        display.end(trial, target.price, is_free=target.is_stand_in)
    return 0 if display.all_scored() else 1


@contextmanager
def target_model(config: TrainConfig) -> Iterator[TargetModel]:
    """Yield the model of the target's connection in the environment, else the offline stand-in."""
    variable = f"AIRFLOW_CONN_{config.model.target_conn_id.upper()}"
    if os.environ.get(variable):
        yield connected_target(config)
        return
    with served(StandInServer("127.0.0.1", 0)) as server:
        wire_format = HARNESSES[config.model.harness].wire_format
        upstream = Upstream(
            conn_id="stand-in",
            dialect="openai-chat" if wire_format is None else wire_format,
            base_url=server.base_url,
            model="stand-in-target",
        )
        name = f"the offline stand-in, not a language model (set {variable} to use a real one)"
        yield TargetModel(upstream, name, None, is_stand_in=True)


def open_sandbox(
    home: Path, trial: Trial, folder: Path, stopped: threading.Event, display: TrialDisplay
) -> AbstractContextManager[Runtime]:
    """Open containers if the trial needs their image, else a process."""
    if not trial.needs_image:
        return nullcontext(ProcessRuntime(trial, folder))
    from skillopt_airflow.sandbox.docker_runtime import open_runtime

    trial.docker_url = docker_host = engine.ensure(home, display.note)
    names = [name for name, recipe in image.RECIPES.items() if recipe.image == trial.image]
    image.ensure(home, docker_host, display.note, names)

    def exchange(name: str) -> NoReturn:
        raise ConfigError(
            f"DOCKER_HOST={docker_host}: `make try` needs an engine on this machine, because it stores nothing"
        )

    return open_runtime(trial, folder, 1, docker_host, exchange, stopped)
