from skillopt_airflow.core.transfer_matrix import TransferMatrix
from skillopt_airflow.report.matrix_markdown import STANDIN, as_markdown, named
from tests.store.test_matrix_table import example


def rows(matrix: TransferMatrix) -> list[list[str]]:
    lines = [line for line in as_markdown(matrix).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_skill_in_every_cell_has_a_row_and_what_has_no_score_a_reason() -> None:
    found = rows(example())
    assert [row[:3] for row in found] == [
        [f"`openai-chat:{target}`", "`chat`", f"`skill {place}`"] for target in ("m", "other") for place in (0, 1)
    ]
    assert found[0][3].startswith("1.0000 [")
    assert found[0][4:7] == ["12", "100%", ""]
    assert found[1][6].endswith("0:0")
    assert found[2][3:7] == ["no score", "0", "0%", ""]
    text = as_markdown(example())
    assert "`evaluation.min_coverage`" in text
    assert "- `openai-chat:other`, `chat`, `skill 0`: `12 of 12 items: model_error: " in text


def test_names_that_somebody_else_wrote_break_no_table() -> None:
    matrix = example()
    skills = tuple(skill.model_copy(update={"source": "a|b`c` <img src=x>"}) for skill in matrix.skills)
    hostile = matrix.model_copy(update={"skills": skills})
    assert {len(row) for row in rows(hostile)} == {9}
    assert rows(hostile)[0][2] == "`a¦b'c' <img src=x>`"
    # And the stand-in is called what it is.
    cells = tuple(cell.model_copy(update={"target": "openai-chat:stand-in-target"}) for cell in matrix.cells)
    offline = matrix.model_copy(update={"cells": cells})
    assert [STANDIN in as_markdown(one) for one in (matrix, offline)] == [False, True]


def test_a_version_is_told_beside_another_name() -> None:
    skill = example().skills[0].model_copy(update={"source": "champion", "version": "v0003-0123456789ab"})
    assert named(skill) == "champion (v0003-0123456789ab)"
    assert named(skill.model_copy(update={"source": skill.version})) == skill.version
    assert named(skill.model_copy(update={"version": ""})) == "champion"
