"""The matrix of a run of the transfer DAG, in the tab of its run."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from skillopt_airflow.core.failure_reasons import FailureReason
from skillopt_airflow.core.transfer_matrix import TransferMatrix
from skillopt_airflow.core.types import Status
from skillopt_airflow.pipeline.addresses import DAG_RUN_REPORT
from skillopt_airflow.store.keys import TransferKeys, transfer_name
from skillopt_airflow.store.matrix_table import MatrixTable
from skillopt_airflow.ui import reports, transfer_page
from tests.store.test_matrix_table import example
from tests.training.local_store import LocalStore
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain

RUN_ID = "manual__2026-11-21T04:00:00+00:00"
PATH = DAG_RUN_REPORT.format(dag_id="transfer_searchqa", run_id=RUN_ID)
RUN = transfer_name(RUN_ID)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    store = LocalStore()
    monkeypatch.setattr(transfer_page, "open_bucket", lambda storage, bucket: store)
    begin(monkeypatch)
    return store


def begin(monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any] | None = None, *, there: bool = True) -> None:
    row = reports.DagRunRow({} if conf is None else conf, None) if there else None
    monkeypatch.setitem(reports.app.dependency_overrides, reports.row_of, lambda: row)


def save(store: LocalStore, matrix: TransferMatrix, prefix: str = "") -> None:
    MatrixTable(store, TransferKeys(prefix, "searchqa")).save(matrix.model_copy(update={"run": RUN}), "")


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
    assert "s3://local/transfer/benchmark=searchqa/run=" in text


def test_a_run_may_store_elsewhere(viewer: TestClient, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, example(), "team/")
    missing = viewer.get(PATH)
    assert (missing.status_code, "No matrix yet" in missing.text) == (404, True)
    assert f"s3://local/transfer/benchmark=searchqa/run={RUN}/matrix.json" in missing.text
    begin(monkeypatch, {"overrides": {"storage.prefix": "team/"}})
    assert viewer.get(PATH).status_code == 200


@pytest.mark.parametrize("name", HOSTILE)
def test_what_others_wrote_is_text(viewer: TestClient, store: LocalStore, name: str) -> None:
    shown = []
    for text in (HOSTILE[name], plain(HOSTILE[name])):
        save(store, named(text))
        shown.append(viewer.get(PATH).text)
    assert_harmless(*shown, most=100_000)


def named(text: str) -> TransferMatrix:
    """A matrix in which all that somebody else chose is this text."""
    matrix = example()
    skills = tuple(skill.model_copy(update={"source": text, "version": text}) for skill in matrix.skills)
    reason = FailureReason(status=Status.MODEL_ERROR, error=text, count=1, items=12, item_id=text)
    cells = tuple(
        cell.model_copy(
            update={
                "target": f"{text}{place}",
                "harness": text,
                "skills": tuple(one.model_copy(update={"reason": reason}) for one in cell.skills),
            }
        )
        for place, cell in enumerate(matrix.cells)
    )
    return matrix.model_copy(update={"skills": skills, "cells": cells})


def test_a_run_that_is_not_there(viewer: TestClient, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(monkeypatch, there=False)
    assert viewer.get(PATH).status_code == 404
