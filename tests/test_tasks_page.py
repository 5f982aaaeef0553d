"""What docs/tasks.md shows of a task can be written so."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillopt_airflow.core.values.types import DATA_SPLITS
from skillopt_airflow.store.data.data_manifest import SplitList
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.task_group import ANSWER_RULES, SCORING_RULES, TaskGroup, task_of

PROJECT = Path(__file__).parents[1]
PAGE, README = ((PROJECT / page).read_text(encoding="utf-8") for page in ("docs/tasks.md", "README.md"))
LAYERS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
RULES = {
    kind: [yaml.safe_load(rule) for rule in re.findall(rf"^\| `(\{{{kind}: .*?\}})` \|", PAGE, re.MULTILINE)]
    for kind in ("from", "by")
}
RECORD: dict[str, Any] = {"id": "c1", "question": "Why?", "answer": "So.", "annexes": ["a/plan.txt"], "scan": "a.png"}


def task(section: dict[str, Any]) -> TaskGroup:
    read = task_of(section)
    assert read is not None
    return read


def test_the_list_of_splits_is_one() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert set(SplitList.model_validate_json(shown).splits) == set(DATA_SPLITS)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_section_makes_an_item_of_a_record(layer: dict[str, Any]) -> None:
    assert declared_benchmark(task(layer["task"])).item(RECORD).public["prompt"]


def test_every_key_and_every_rule_is_shown() -> None:
    assert set(re.findall(r"^\| `task\.(\w+)` \| [^`]", PAGE, re.MULTILINE)) >= set(TaskGroup.model_fields) - {"prompt"}
    assert [rule["from"] for rule in RULES["from"]] == list(ANSWER_RULES)
    assert [rule["by"] for rule in RULES["by"]] == list(SCORING_RULES)


@pytest.mark.parametrize("rule", [*RULES["from"], *RULES["by"]], ids=str)
def test_every_rule_is_read_with_all_the_keys_that_it_has(rule: dict[str, Any]) -> None:
    section = {"prompt": "x", "reference": "y", "score": {"by": "exact"}}
    read = task(section | {"answer" if "from" in rule else "score": rule})
    chosen = read.answer if "from" in rule else read.score
    assert {field.alias or key for key, field in type(chosen).model_fields.items()} == set(rule)


def test_the_readme_shows_the_task_of_its_example() -> None:
    [shown] = [block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if block.startswith("task:")]
    example = yaml.safe_load((PROJECT / "examples/capitals/benchmark/benchmark.yaml").read_text(encoding="utf-8"))
    assert yaml.safe_load(shown) == {"task": example["task"]}
