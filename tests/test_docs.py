"""The pages of docs/ and the README are true: commands, knobs, files, defaults, and the keys of a task."""

import json
import re
import shlex
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from airflow.sdk import DAG
from command_blocks import BLOCKS, PROJECT

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, changed_paths, fields_by_path, values_by_path
from skillopt_airflow.core.values.types import DATA_SPLITS
from skillopt_airflow.pipeline.cleanup_dag import cleanup_dag
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.publishing import publish_dag, rollback_dag
from skillopt_airflow.pipeline.tasks import params
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.store.data.data_manifest import SplitList
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.task_group import ANSWER_RULES, KEYS, SCORING_RULES, TaskGroup, task_of
from skillopt_airflow.training.prepare.benchmark_settings import SAMPLE, benchmark_config, preset_names, preset_of

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
    if dag_id == "skillopt_cleanup":
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


LINES = (PROJECT / "docs" / "defaults.md").read_text(encoding="utf-8").splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES if line.startswith("| ")]
OURS = [path.parent.name for path in sorted((benchmarks.project() / "benchmarks").glob("[a-z]*/benchmark.yaml"))]
ELSEWHERE = "all.json"


class Default(NamedTuple):
    knob: str
    of: list[str]
    here: Any
    reference: Any
    why: str


def value(cell: str) -> Any:
    return yaml.safe_load(cell.strip("`"))


DEFAULTS = [
    Default(value(knob), OURS if of == "all" else of.split(", "), value(here), value(reference), why)
    for knob, of, here, reference, why in (row for row in ROWS if len(row) == 5 and row[0].startswith("`"))
]


def test_each_default_is_the_configurations_and_has_a_reason() -> None:
    assert DEFAULTS
    for row in DEFAULTS:
        assert row.here != row.reference, row.knob
        assert row.why
        for benchmark in row.of:
            assert values_by_path(benchmark_config(benchmark, ELSEWHERE))[row.knob] == row.here, (row.knob, benchmark)


@pytest.mark.parametrize("benchmark", OURS)
def test_each_default_that_a_preset_changes_is_listed(benchmark: str) -> None:
    config = benchmark_config(benchmark, ELSEWHERE)
    [name] = preset_names(benchmark)
    asked = TrainConfig.from_layers(config.model_dump(), preset_of(benchmark, name).settings)
    changed = {path: values_by_path(asked)[path] for path in changed_paths(config, asked)}
    assert changed.items() <= {row.knob: row.reference for row in DEFAULTS if benchmark in row.of}.items()


def test_each_benchmark_has_its_preset_and_its_batch_sizes() -> None:
    listed = {row[0]: (row[1], value(row[2]), value(row[3])) for row in ROWS if row[0] in OURS}
    assert listed.keys() == set(OURS)
    for benchmark, (preset, batch, on_sample) in listed.items():
        assert preset_names(benchmark) == [preset]
        sizes = [benchmark_config(benchmark, uri).train.batch_size for uri in (ELSEWHERE, SAMPLE)]
        assert sizes == [batch, on_sample]
        assert preset_of(benchmark, preset).settings["train"]["batch_size"] == batch


TASKS, OWN_DATA = ((PROJECT / "docs" / page).read_text(encoding="utf-8") for page in ("tasks.md", "own_data.md"))
LAYERS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TASKS, re.DOTALL)]
RULES = {
    kind: [yaml.safe_load(rule) for rule in re.findall(rf"^\| `(\{{{kind}: .*?\}})` \|", TASKS, re.MULTILINE)]
    for kind in ("from", "by")
}
RECORD: dict[str, Any] = {"id": "c1", "question": "Why?", "answer": "So.", "annexes": ["a/plan.txt"], "scan": "a.png"}


def task(section: dict[str, Any]) -> TaskGroup:
    read = task_of(section)
    assert read is not None
    return read


def test_the_list_of_splits_is_one() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", TASKS, re.DOTALL)
    assert set(SplitList.model_validate_json(shown).splits) == set(DATA_SPLITS)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_section_makes_an_item_of_a_record(layer: dict[str, Any]) -> None:
    assert declared_benchmark(task(layer["task"])).item(RECORD).public["prompt"]


def test_every_key_and_every_rule_is_shown() -> None:
    assert set(re.findall(r"^\| `task\.(\w+)` \| [^`]", TASKS, re.MULTILINE)) >= set(TaskGroup.model_fields) - {
        "prompt"
    }
    assert [rule["from"] for rule in RULES["from"]] == list(ANSWER_RULES)
    assert [rule["by"] for rule in RULES["by"]] == list(SCORING_RULES)


@pytest.mark.parametrize("rule", [*RULES["from"], *RULES["by"]], ids=str)
def test_every_rule_is_read_with_all_the_keys_that_it_has(rule: dict[str, Any]) -> None:
    section = {"prompt": "x", "reference": "y", "score": {"by": "exact"}}
    read = task(section | {"answer" if "from" in rule else "score": rule})
    chosen = read.answer if "from" in rule else read.score
    assert {field.alias or key for key, field in type(chosen).model_fields.items()} == set(rule)


def test_the_page_of_own_data_shows_the_task_of_its_example() -> None:
    [shown] = [block for block in re.findall(r"```yaml\n(.*?)```", OWN_DATA, re.DOTALL) if block.startswith("task:")]
    example = yaml.safe_load((PROJECT / "examples/capitals/benchmark/benchmark.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(shown) == {"task": example["task"]}


def test_every_kind_of_document_is_on_its_page() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (PROJECT / "include").rglob("*.py")]
    kinds = {kind for text in sources for kind in re.findall(r"^class (\w+)\(Document\)", text, re.MULTILINE)}
    page = PAGES[PROJECT / "docs" / "documents.md"]
    assert kinds <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
