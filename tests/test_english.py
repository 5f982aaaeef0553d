"""What people read is plain English: no sentence is too long, and the words are those of the style guide."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.tasks.task_group import TaskGroup

PROJECT = Path(__file__).parents[1]
PLACES = ("*.md", "docs/*.md", "benchmarks/*/README.md", "examples/*/README.md")
PAGES = sorted(path for name in PLACES for path in PROJECT.glob(name))
TEMPLATES = sorted((PROJECT / "include/skillopt_airflow").glob("*/templates/*.html"))
MAX_WORDS = 30
AVOIDED = re.compile(
    r"\b(whoever|nobody|somebody|for ever|in vain|of no use|anew|dearest|besides|licence|judgement|normalised|"
    r"so many|mend|lies|blanks|time-out|data set|rolled out on|a model that judges)\b",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """Split prose of Markdown or HTML at its ends of sentences, cells, list items and paragraphs."""
    text = re.sub(r"```.*?```|<(script|style).*?</\1>|{[{%#].*?[}%#]}", " ", text, flags=re.DOTALL)
    text = re.sub(r"</?(p|li|td|th|h\d|div|dt|dd|summary|option|label|button)\b[^>]*>", "\n\n", text)
    text = re.sub(r"<[^>]+>", " ", text)
    text = re.sub(r"`[^`]*`|https?://\S+", "x", re.sub(r"\]\([^)]*\)", "]", text))
    # A list of names is one word.
    text = re.sub(r"\bx(?:,\s+x)+\b", "x", text)
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) |\n#+ |\|", text):
        yield from (one.strip() for one in re.split(r"(?<=[.!?:;])\s", block) if one.strip())


def flaws(text: str) -> list[str]:
    return [one for one in sentences(text) if words(one) > MAX_WORDS or AVOIDED.search(one)]


def words(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


@pytest.mark.parametrize("page", [*PAGES, *TEMPLATES], ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_page_reads_easily(page: Path) -> None:
    assert flaws(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("group", [*TrainConfig.model_fields, "task"])
def test_a_knobs_description_reads_easily(group: str) -> None:
    kind = TaskGroup if group == "task" else TrainConfig.model_fields[group].annotation
    assert kind is not None
    described = kind.model_json_schema()["properties"]
    assert {name: found for name, knob in described.items() if (found := flaws(knob.get("description", "")))} == {}
