"""Files with one picture an item load as they were published; DocVQA's in each of their forms."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import Item, JsonObject, Status, Trajectory
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from tests.benchmarks.published_pictures import loaded, picture

BENCHMARK = benchmarks.load("docvqa", benchmark_config("docvqa").task)
RECORD: JsonObject = {"questionId": 7, "question": "Who signed?", "image": "documents/x.png", "docId": 3}


def test_the_score_is_that_of_the_paper() -> None:
    item = BENCHMARK.item(RECORD | {"answers": ["london", "university of california"]})
    answer = BENCHMARK.answer("<answer>London</answer> or <answer>universty of california</answer>")
    score = BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))
    assert (score.hard, score.soft) == (0.0, pytest.approx(0.9583, abs=5e-5))
    assert BENCHMARK.answer("It is here:\n\nB\n") == "B"


def check(found: list[tuple[Item, dict[str, bytes]]]) -> None:
    assert [item.id for item, _ in found] == ["1", "2", "3"]
    assert [item.group for item, _ in found] == ["11", "12", "13"]
    assert [item.reference["reference"] for item, _ in found] == [["10 May", "May 10"], ["it's"], ["3"]]
    assert [pages for _, pages in found] == [{"picture-1.png": picture(shade)} for shade in (10, 20, 30)]
    assert "Question about the page: Which 1?" in str(found[0][0].public["prompt"])


ANSWERS = [["10 May", "May 10"], ["it's"], ["3"]]


def test_the_table_of_the_hub_loads_with_its_embedded_pages(tmp_path: Path) -> None:
    columns = {
        "questionId": ["1", "2", "3"],
        "question": ["Which 1?", "Which 2?", "Which 3?"],
        "image": [{"bytes": picture(shade), "path": f"{shade}.png"} for shade in (10, 20, 30)],
        "docId": [11, 12, 13],
        "answers": ANSWERS,
    }
    path = tmp_path / "validation-00000-of-00001.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    check(loaded("docvqa", str(path)))


def pages_beside(folder: Path) -> None:
    (folder / "documents").mkdir()
    for shade in (10, 20, 30):
        (folder / "documents" / f"{shade}.png").write_bytes(picture(shade))


def test_the_object_of_the_competition_loads_with_its_folder(tmp_path: Path) -> None:
    pages_beside(tmp_path)
    records = []
    for number, answers in enumerate(ANSWERS, start=1):
        asked = {"questionId": number, "question": f"Which {number}?", "answers": answers}
        records.append(asked | {"image": f"documents/{number}0.png", "docId": 10 + number})
    (tmp_path / "val_v1.0.json").write_text(json.dumps({"dataset_name": "docvqa", "data": records}))
    check(loaded("docvqa", f"{tmp_path}/val_v1.0.json"))


def test_a_table_of_texts_has_its_answers_in_python_notation(tmp_path: Path) -> None:
    pages_beside(tmp_path)
    rows = [
        "1,Which 1?,\"['10 May', 'May 10']\",documents/10.png,11",
        '2,Which 2?,"[""it\'s""]",documents/20.png,12',
        "3,Which 3?,['3'],documents/30.png,13",
    ]
    (tmp_path / "val.csv").write_text("\n".join(["id,question,answer,image_path,docId", *rows]) + "\n")
    check(loaded("docvqa", f"{tmp_path}/val.csv", pictures=["image_path"], reference="answer", id="id"))
