import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.run.skill_matrix import SkillMatrix
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.store.keys import MatrixKeys
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.store.tables.parquet import from_parquet
from tests.core.run.test_skill_matrix import ITEMS, TARGET, cell_of, matrix, measured, rollout
from tests.training.local_store import LocalStore

KEYS = MatrixKeys("team/", "searchqa")
FOLDER = "team/evaluations/benchmark=searchqa/"


def example(run: str = "r", day: int = 0, status: Status = Status.MODEL_ERROR) -> SkillMatrix:
    """Two skills in two cells, the second of which has no scores unless its rollouts are ok."""
    good, bad = ([measured([rollout(item, one, 1.0) for item in ITEMS])] * 2 for one in (Status.OK, status))
    # Not one object twice, which would be the first skill.
    cells = [
        cell_of([one, one._replace(failed=list(one.failed))], EvaluationGroup(), target)
        for target, (one, _) in ((TARGET, good), ("openai-chat:other", bad))
    ]
    created = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(days=day)
    return matrix(cells).model_copy(update={"run": run, "created": created})


def changed(matrix: SkillMatrix, **fields: object) -> SkillMatrix:
    """The matrix with these fields of every skill in every cell."""
    cells = tuple(
        cell.model_copy(update={"skills": tuple(one.model_copy(update=fields) for one in cell.skills)})
        for cell in matrix.cells
    )
    return matrix.model_copy(update={"cells": cells})


@pytest.fixture
def store() -> LocalStore:
    return LocalStore()


def test_a_matrix_is_a_document_a_table_and_a_text(store: LocalStore) -> None:
    made = example()
    assert MatrixTable(store, KEYS).save(made, "# text\n") == f"{FOLDER}run=r/matrix.json"
    assert store.list_keys(f"{FOLDER}run=") == [f"{FOLDER}run=r/matrix.{end}" for end in ("json", "md", "parquet")]
    assert MatrixTable(store, KEYS).read("r") == made
    table = from_parquet(store.get_bytes(KEYS.table("r")))
    first, second, third, _ = table.to_pylist()
    assert [row["target"] for row in (first, third)] == ["openai-chat:m", "openai-chat:other"]
    assert (first["skill"], first["score"], first["items"], first["against"]) == ("skill 0", 1.0, 12, None)
    assert (second["against"], second["delta"], second["wins"], second["ties"]) == ("skill 0", 0.0, 0, 12)
    # What is not known is no 0.
    assert (third["score"], third["low"], third["delta"], third["usd"]) == (None, None, None, None)
    assert third["reason"].startswith("12 of 12 items: model_error")
    # Benchmark and run are partitions, which pyarrow refuses as columns.
    assert not {"benchmark", "run"} & set(table.column_names)


def test_all_matrices_read_as_one_table_as_the_page_says(store: LocalStore, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    [query] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    for day, benchmark in enumerate(("searchqa", "searchqa", "officeqa")):
        MatrixTable(store, MatrixKeys("", benchmark)).save(example(f"run-{day}", day), "")
    for key, body in store.objects.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(body)
    with duckdb.connect() as connection:
        rows = connection.sql(query.replace("s3://skillopt/", f"{tmp_path}/")).fetchall()
    assert len(rows) == 2 * 4
    assert {row[:3] for row in rows} == {
        (target, "chat", skill) for target in ("openai-chat:m", "openai-chat:other") for skill in ("skill 0", "skill 1")
    }


def test_a_run_that_is_concluded_again_replaces_its_matrix(store: LocalStore) -> None:
    table = MatrixTable(store, KEYS)
    table.save(example(), "before")
    keys = store.list_keys(FOLDER)
    table.save(example(status=Status.OK), "after")
    assert store.list_keys(FOLDER) == keys
    assert table.of_skill("0", 10) == [example(status=Status.OK)]
    assert store.get_text(KEYS.markdown("r")) == "after"
    # Prepared at another time, it is still one.
    table.save(example(day=1), "later")
    assert table.of_skill("0", 10) == [example(day=1)]
    # Now it compared another champion, so the name of the former leads nowhere.
    skills = tuple(skill.model_copy(update={"sha256": "new"}) for skill in example().skills)
    table.save(example().model_copy(update={"skills": skills}), "")
    assert (table.of_skill("0", 10), len(table.of_skill("new", 10))) == ([], 1)
    store.delete(KEYS.matrix("r"))
    assert table.of_skill("new", 10) == []
    with pytest.raises(ObjectMissing):
        table.read("r")


def test_the_newest_matrices_of_a_skill_are_found_by_few_reads(store: LocalStore) -> None:
    table = MatrixTable(store, KEYS)
    for day in range(30):
        # A name says nothing about the time.
        table.save(example(f"run-{29 - day}-x", day), "")
    read: list[str] = []
    store.before_read = read.append
    found = table.of_skill("1", limit=4)
    assert [one.run for one in found] == [f"run-{place}-x" for place in range(4)]
    assert len(read) == 4
    assert len(table.of_skill("1", 10)) == 10
    assert table.of_skill("2", 10) == []
