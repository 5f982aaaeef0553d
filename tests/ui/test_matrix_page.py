"""The matrix of a run of the evaluation DAG, in the tab of its run."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow.core.gate.measured_score import TypeScore
from skillopt_airflow.core.gate.policies import Action, Verdict
from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from skillopt_airflow.core.values.failure_reasons import FailureReason
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.pipeline.tasks.addresses import DAG_RUN_REPORT
from skillopt_airflow.store.keys import MatrixKeys, scoring_name
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.ui import reports
from tests.store.tables.test_matrix_table import changed, example
from tests.training.local_store import LocalStore
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain

RUN_ID = "manual__2026-11-21T04:00:00+00:00"
PATH = DAG_RUN_REPORT.format(dag_id="evaluate_searchqa", run_id=RUN_ID)
RUN = scoring_name(RUN_ID)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    store = LocalStore()
    monkeypatch.setattr(reports, "open_bucket", lambda storage, bucket: store)
    begin(monkeypatch)
    return store


def begin(monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any] | None = None, *, there: bool = True) -> None:
    row = reports.DagRunRow({} if conf is None else conf, None) if there else None
    monkeypatch.setitem(reports.app.dependency_overrides, reports.row_of, lambda: row)


def save(store: LocalStore, matrix: SkillMatrix, prefix: str = "") -> None:
    MatrixTable(store, MatrixKeys(prefix, "searchqa")).save(matrix.model_copy(update={"run": RUN}), "")


def test_the_tab_of_a_run_shows_its_matrix(viewer: TestClient, store: LocalStore) -> None:
    save(store, example())
    answer = viewer.get(PATH)
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    text = answer.text
    # A table for those who hear it: what it is, and what each cell is of.
    assert text.count("<caption") == 1
    assert text.count('scope="rowgroup" rowspan="2"') == 2
    assert text.count('<th scope="row">') == 2 * 2 + 2
    assert text.count("no score</span>") == 2
    assert "12 of 12 items: model_error: " in text
    assert "s3://local/evaluations/benchmark=searchqa/run=" in text
    assert html.fromstring(text).xpath("//li/a/@href") == ["rollouts?cell=0", "rollouts?cell=1"]


def test_a_verdict_and_the_types_of_task_are_shown(viewer: TestClient, store: LocalStore) -> None:
    verdict = Verdict(action=Action.REJECT, reason="not better than current")
    typed = (TypeScore(task_type="geometry", items=3, score=0.25),)
    save(store, changed(example(), verdict=verdict, by_type=typed).model_copy(update={"policy": "strict"}))
    text = viewer.get(PATH).text
    assert text.count("not better</span>") == 4
    assert "not better than current" in text
    assert text.count("geometry") == 4
    assert "0.2500" in text


def test_a_run_may_store_elsewhere(viewer: TestClient, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, example(), "team/")
    missing = viewer.get(PATH)
    assert (missing.status_code, "No matrix yet" in missing.text) == (404, True)
    assert f"s3://local/evaluations/benchmark=searchqa/run={RUN}/matrix.json" in missing.text
    begin(monkeypatch, {"overrides": {"storage.prefix": "team/"}})
    assert viewer.get(PATH).status_code == 200


@pytest.mark.parametrize("name", HOSTILE)
def test_what_others_wrote_is_text(viewer: TestClient, store: LocalStore, name: str) -> None:
    shown = []
    for text in (HOSTILE[name], plain(HOSTILE[name])):
        save(store, named(text))
        shown.append(viewer.get(PATH).text)
    assert_harmless(*shown, most=100_000)


def named(text: str) -> SkillMatrix:
    """A matrix in which all that somebody else chose is this text."""
    matrix = example()
    skills = tuple(skill.model_copy(update={"source": text, "version": text}) for skill in matrix.skills)
    reason = FailureReason(status=Status.MODEL_ERROR, error=text, count=1, items=12, item_id=text)
    verdict, typed = Verdict(action=Action.REJECT, reason=text), (TypeScore(task_type=text, items=1, score=0.5),)
    hostile = changed(matrix, reason=reason, verdict=verdict, by_type=typed)
    cells = tuple(
        cell.model_copy(update={"target": f"{text}{place}", "harness": text})
        for place, cell in enumerate(hostile.cells)
    )
    return hostile.model_copy(update={"skills": skills, "cells": cells})


def test_a_run_that_is_not_there(viewer: TestClient, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, there=False)
    assert viewer.get(PATH).status_code == 404
