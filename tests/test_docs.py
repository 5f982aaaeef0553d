"""What README and docs/ tell a user to type is right: Airflow's own parser, the DAGs' forms, the connections."""

import json
import re
import shlex
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
import yaml
from airflow.sdk import DAG
from command_blocks import BLOCKS, PROJECT

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, fields_by_path
from skillopt_airflow.pipeline.cleanup_dag import cleanup_dag
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.publishing import publish_dag, rollback_dag
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.tasks.task_group import KEYS
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config

PAGES = {path: path.read_text(encoding="utf-8") for path in [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]}
FACTORIES = {
    "evaluate": evaluate_dag,
    "publish": publish_dag,
    "regate": regate_dag,
    "rollback": rollback_dag,
    "train": train_dag,
}


PROGRAM = ".local/bin/airflow "
INLINE = [one for text in PAGES.values() for one in re.findall(rf"`({re.escape(PROGRAM)}[^`]+)`", text)]
AIRFLOW = [command for block in BLOCKS for command in block.commands if command.startswith(PROGRAM)] + INLINE


@cache
def dag_of(dag_id: str) -> DAG:
    if dag_id == "cleanup":
        return cleanup_dag(["searchqa"], {"searchqa": benchmark_config("searchqa")})
    family, _, benchmark = dag_id.partition("_")
    return FACTORIES[family](benchmark, benchmark_config(benchmark))


@pytest.fixture(autouse=True)
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark that the recipe copies from examples/ is where it was copied from."""
    own = benchmarks.folder

    def folder(name: str) -> Path:
        example = PROJECT / "examples" / name / "benchmark"
        return example if example.exists() else own(name)

    monkeypatch.setattr(benchmarks, "folder", folder)


@pytest.mark.parametrize("command", AIRFLOW)
def test_airflow_understands_the_command_and_its_dag_takes_what_it_is_given(command: str) -> None:
    # It loads the commands of all providers.
    from airflow.cli.cli_parser import get_parser

    asked = get_parser().parse_args(shlex.split(command)[1:])
    if not hasattr(asked, "dag_id"):
        return
    dag = dag_of(asked.dag_id)
    conf = json.loads(getattr(asked, "conf", None) or getattr(asked, "dag_run_conf", None) or "{}")
    assert conf.keys() <= set(dag.params)
    form = deepcopy(dag.params)
    form.update(conf)
    filled = form.validate()
    assert {key: filled[key] for key in conf} == conf
    if asked.dag_id.startswith("train_") and conf:
        config = benchmark_config(asked.dag_id.removeprefix("train_"))
        assert params.run_config(config, conf) != config
    if asked.subcommand == "unpause":
        assert dag.is_paused_upon_creation


def test_the_connection_that_gets_alerts_leads_to_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.http.hooks.http import HttpHook

    [command] = [
        command
        for block in BLOCKS
        if block.page == "docs/publishing.md"
        for command in block.commands
        if command.startswith("export ")
    ]
    [_, assignment] = shlex.split(command)
    name, _, value = assignment.partition("=")
    monkeypatch.setenv(name, value)
    hook = HttpHook(http_conn_id=name.removeprefix("AIRFLOW_CONN_").lower())
    assert hook.url_from_endpoint(None) == json.loads(value)["host"]


def test_the_settings_that_pages_show_are_configurations() -> None:

    shown = [
        yaml.safe_load(block)
        for page in ("publishing.md", "regate.md")
        for block in re.findall(r"```yaml\n(.*?)```", PAGES[PROJECT / "docs" / page], re.DOTALL)
    ]
    assert shown
    for layer in shown:
        assert TrainConfig.from_layers(layer) != TrainConfig()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_knob_and_file_that_a_page_names_exists(page: Path) -> None:
    text = PAGES[page]
    groups = "|".join(TrainConfig.model_fields)
    named = set(re.findall(rf"`((?:{groups})\.[a-z_]+)(?:: [a-z]+)?`", text))
    assert named <= {*fields_by_path(), *KEYS}
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    files = re.findall(r"`((?:docker|include|bench|benchmarks|docs|examples|tests)/[\w./]+)`", text)
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert not missing + [name for name in files if not (PROJECT / name).exists()]
