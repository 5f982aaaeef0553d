"""docs/defaults.md has the values of the configuration, and all that the presets set differently."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, changed_paths, values_by_path
from skillopt_airflow.training.prepare.benchmark_settings import SAMPLE, benchmark_config, preset_names, preset_of

PAGE = (Path(__file__).parents[1] / "docs" / "defaults.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| ")]
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


def test_the_page_is_found_from_the_readme() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\]\(docs/defaults\.md\)", readme)
