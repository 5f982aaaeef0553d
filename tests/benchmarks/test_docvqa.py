"""DocVQA's scores are the published ones, and its files load as they were published."""

import io
import json
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.types import Item, JsonObject, Split, Status, Trajectory
from skillopt_airflow.store.files import DataFiles
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.trial import first_items

BENCHMARK = benchmarks.load("docvqa", benchmark_config("docvqa").task)
RECORD: JsonObject = {"questionId": 7, "question": "Who signed?", "image": "documents/x.png", "docId": 3}


def page(shade: int) -> bytes:
    stored = io.BytesIO()
    Image.new("L", (40, 30), shade).save(stored, "PNG")
    return stored.getvalue()


@pytest.mark.parametrize(
    ("response", "answers", "likeness"),
    [
        ("0.28", ["0.28"], 1),
        ("t.f. riehl", ["T.F. Riehl", "T. F. Riehl"], 1),
        ("  University   of California ", ["university of california"], 1),
        ("universty of california", ["university of california"], 0.9583),
        ("ab", ["ac"], 0),
        ("abc", ["abd"], 0.6667),
        ("abcde", ["abxyz"], 0),
        ("$ 1,000", ["$1,000"], 0.8571),
        ("1998", ["1996"], 0.75),
        ("1998", ["2006"], 0),
        ("the answer is 1998", ["1998"], 0),
        ("paris", ["london", "parish"], 0.8333),
        ("Dr. Smith", ["Smith"], 0.5556),
        ("", ["x"], 0),
        ("<answer>A</answer> then <answer>B</answer>", ["B"], 1),
        ("It is here:\n\nB\n", ["B"], 1),
    ],
)
def test_scores_are_those_of_the_paper(response: str, answers: list[str], likeness: float) -> None:
    item = BENCHMARK.item(RECORD | {"answers": [*answers]})
    given = Trajectory(item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(response))
    score = BENCHMARK.score(item, given)
    assert score.soft == pytest.approx(likeness, abs=5e-5)
    assert score.hard == float(likeness == 1)


def loaded(path: Path, **task: object) -> list[tuple[Item, dict[str, bytes]]]:
    """The items of a file with their pages, as a run of its own would have them."""
    knobs = {"data.uri": str(path), "data.split_mode": "ratio", "data.split_ratio": "1:1:1"}
    knobs |= {f"task.{key}": value for key, value in task.items()}  # type: ignore[misc]
    config = TrainConfig.from_layers(benchmark_config("docvqa").model_dump(), nest(knobs))
    adapter = benchmarks.load("docvqa", config.task)
    files = DataFiles.of(config.data, benchmarks.folder("docvqa"), cast("None", None))
    items = [
        item
        for split in (Split.TRAIN, Split.VAL, Split.TEST)
        for item in first_items("docvqa", adapter, config, split, 9, cast("None", None))
    ]
    return sorted(((item, files.contents(item.files)) for item in items), key=lambda pair: pair[0].id)


def check(found: list[tuple[Item, dict[str, bytes]]]) -> None:
    assert [item.id for item, _ in found] == ["1", "2", "3"]
    assert [item.group for item, _ in found] == ["11", "12", "13"]
    assert [item.reference["reference"] for item, _ in found] == [["10 May", "May 10"], ["it's"], ["3"]]
    assert [pages for _, pages in found] == [{"picture-1.png": page(shade)} for shade in (10, 20, 30)]
    assert "Question about the page: Which 1?" in str(found[0][0].public["prompt"])


ANSWERS = [["10 May", "May 10"], ["it's"], ["3"]]


def test_the_table_of_the_hub_loads_with_its_embedded_pages(tmp_path: Path) -> None:
    columns = {
        "questionId": ["1", "2", "3"],
        "question": ["Which 1?", "Which 2?", "Which 3?"],
        "question_types": [["form"], ["layout", "form"], []],
        "image": [{"bytes": page(shade), "path": f"{shade}.png"} for shade in (10, 20, 30)],
        "docId": [11, 12, 13],
        "ucsf_document_id": ["a", "b", "c"],
        "answers": ANSWERS,
        "data_split": ["val"] * 3,
    }
    path = tmp_path / "validation-00000-of-00001.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    check(loaded(path))


def pages_beside(folder: Path) -> None:
    (folder / "documents").mkdir()
    for shade in (10, 20, 30):
        (folder / "documents" / f"{shade}.png").write_bytes(page(shade))


def test_the_object_of_the_competition_loads_with_its_folder(tmp_path: Path) -> None:
    pages_beside(tmp_path)
    records = [
        {
            "questionId": number,
            "question": f"Which {number}?",
            "image": f"documents/{number}0.png",
            "docId": 10 + number,
            "answers": answers,
            "data_split": "val",
        }
        for number, answers in enumerate(ANSWERS, start=1)
    ]
    told = {"dataset_name": "docvqa", "dataset_split": "val", "dataset_version": "1.0", "data": records}
    (tmp_path / "val_v1.0.json").write_text(json.dumps(told))
    check(loaded(tmp_path / "val_v1.0.json"))


def test_a_table_of_texts_has_its_answers_in_python_notation(tmp_path: Path) -> None:
    pages_beside(tmp_path)
    rows = [
        "1,Which 1?,\"['10 May', 'May 10']\",documents/10.png,11",
        '2,Which 2?,"[""it\'s""]",documents/20.png,12',
        "3,Which 3?,['3'],documents/30.png,13",
    ]
    (tmp_path / "val.csv").write_text("\n".join(["id,question,answer,image_path,docId", *rows]) + "\n")
    check(loaded(tmp_path / "val.csv", pictures=["image_path"], reference="answer", id="id"))
