from pathlib import Path

import pytest

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.training.yaml_file import read_yaml


@pytest.mark.parametrize(
    "lines",
    [
        "prompt: {{ question }} Answer.",
        "prompt: Question: {{ question }}",
        "prompt: {% if hint %}{{ hint }}{% endif %}",
        "pictures: [{{ image }}]",
        "prompt:\n    {{ question }}: x\n    y",
    ],
)
def test_a_template_without_quotation_marks_gets_a_hint(lines: str, tmp_path: Path) -> None:
    file = tmp_path / "benchmark.yaml"
    file.write_text(f"task:\n  {lines}\n  reference: answer\n")
    with pytest.raises(ConfigError, match=r"benchmark\.yaml: not YAML: [\s\S]*\nPut quotation marks around a template"):
        read_yaml(file)


def test_other_slips_get_none(tmp_path: Path) -> None:
    file = tmp_path / "benchmark.yaml"
    file.write_text('task:\n  prompt: "{{ question }}"\n  score: {by: exact\n  reference: answer\nx: y\n')
    with pytest.raises(ConfigError, match="not YAML") as error:
        read_yaml(file)
    assert "quotation marks" not in str(error.value)
    file.write_bytes(b"task: \xff")
    with pytest.raises(ConfigError, match="not YAML"):
        read_yaml(file)
