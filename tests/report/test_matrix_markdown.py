from skillopt_airflow.core.gate_policies import Action, Verdict
from skillopt_airflow.core.measured_score import TypeScore
from skillopt_airflow.core.skill_matrix import SkillMatrix
from skillopt_airflow.report.matrix_markdown import STANDIN, as_markdown, named
from tests.store.test_matrix_table import changed, example


def rows(matrix: SkillMatrix) -> list[list[str]]:
    lines = [line for line in as_markdown(matrix).splitlines() if line.startswith("| test")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_skill_in_every_cell_has_a_row_and_what_has_no_score_a_reason() -> None:
    found = rows(example())
    assert [row[1:4] for row in found] == [
        [f"`openai-chat:{target}`", "`chat`", f"`skill {place}`"] for target in ("m", "other") for place in (0, 1)
    ]
    assert found[0][4].startswith("1.0000 [")
    assert found[0][5:8] == ["12", "100%", ""]
    assert found[1][7].endswith("0:0")
    assert found[2][4:8] == ["no score", "0", "0%", ""]
    text = as_markdown(example())
    assert "`evaluation.min_coverage`" in text
    assert "- test, `openai-chat:other`, `chat`, `skill 0`: `12 of 12 items: model_error: " in text


def test_names_that_somebody_else_wrote_break_no_table() -> None:
    matrix = example()
    skills = tuple(skill.model_copy(update={"source": "a|b`c` <img src=x>"}) for skill in matrix.skills)
    hostile = matrix.model_copy(update={"skills": skills})
    assert {len(row) for row in rows(hostile)} == {10}
    assert rows(hostile)[0][3] == "`a¦b'c' <img src=x>`"
    # And the stand-in is called what it is.
    cells = tuple(cell.model_copy(update={"target": "openai-chat:stand-in-target"}) for cell in matrix.cells)
    offline = matrix.model_copy(update={"cells": cells})
    assert [STANDIN in as_markdown(one) for one in (matrix, offline)] == [False, True]


def test_a_version_is_told_beside_another_name() -> None:
    skill = example().skills[0].model_copy(update={"source": "champion", "version": "v0003-0123456789ab"})
    assert named(skill) == "champion (v0003-0123456789ab)"
    assert named(skill.model_copy(update={"source": skill.version})) == skill.version
    assert named(skill.model_copy(update={"version": ""})) == "champion"


def test_verdicts_and_scores_by_type_follow_the_table() -> None:
    matrix = example()
    verdict = Verdict(action=Action.UNDERPOWERED, reason="0 wins are fewer than 5")
    typed = (TypeScore(task_type="a|b", items=3, score=0.5),)
    shown = changed(matrix, verdict=verdict, by_type=typed)
    text = as_markdown(shown.model_copy(update={"policy": "exact_paired"}))
    assert "by policy exact_paired" in text
    assert "- test, `openai-chat:m`, `chat`, `skill 1`: **no (underpowered)**, 0 wins are fewer than 5" in text
    assert "| test, `openai-chat:m`, `chat`, `skill 1` | `a¦b` | 0.5000 | 3 |" in text
