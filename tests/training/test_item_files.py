"""Pictures of a table's rows: checked at prepare, stored once, estimated, and given to who asks about an item."""

import json
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from PIL import Image

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.pictures import marked
from skillopt_airflow.core.types import DATA_SPLITS, Split
from skillopt_airflow.training.batch_job import check_batchable
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.data_items import unusable_items
from skillopt_airflow.training.item_files import contents, pictures
from skillopt_airflow.training.preparation import estimated
from tests.training.in_process import Training

ROWS = 80
DECLARED = {
    "task": {
        "id": "id",
        "prompt": "{{ scan }} What is the total?",
        "reference": "total",
        "score": {"by": "number"},
        "pictures": ["scan"],
    },
    "data": {"uri": "letters.json", "split_ratio": "2:1:1"},
}


def drawn(number: int) -> bytes:
    made = BytesIO()
    Image.new("RGB", (750, 1000), (number, 0, 0)).save(made, "TIFF")
    return made.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "letters"
    (folder / "scans").mkdir(parents=True)
    (folder / "benchmark.yaml").write_text(yaml.safe_dump(DECLARED))
    (folder / "initial.md").write_text("# Read letters\n")
    rows = [{"id": f"r{n:02d}", "scan": f"scans/{n % 10}.tif", "total": str(n)} for n in range(ROWS)]
    (folder / "letters.json").write_text(json.dumps(rows))
    for number in range(10):
        (folder / "scans" / f"{number}.tif").write_bytes(drawn(number))
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(folder))
    return folder


def prepared(target: str = "openai-chat:m") -> Training:
    knobs = {"model.target": target, "model.optimizer": "openai-chat:o", "train.batch_size": 10}
    training = Training(TrainConfig.from_layers(benchmark_config("letters").model_dump(), nest(knobs)), "letters")
    training.prepare()
    return training


def test_each_picture_is_stored_once_and_found_by_its_item(folder: Path) -> None:
    run = prepared().run
    keys = run.store.list_keys("files/")
    assert len(keys) == 10
    items = run.items(Split.TRAIN)
    found = pictures(run, [items[0], items[5]])
    assert list(found) == [items[0].id, items[5].id]
    for item in (items[0], items[5]):
        [(name, content)] = found[item.id].items()
        image = Image.open(BytesIO(content))
        assert (image.format, image.size) == ("PNG", (750, 1000))
        assert image.getpixel((1, 1)) == (int(item.id[1:]) % 10, 0, 0)
        assert contents(run, item.files) == {name: content}
        assert marked(run.benchmark.messages(item.public, "")[-1].content) == [name]
    # Rows name pictures; only the store of files holds them.
    assert all(len(run.store.get_bytes(key)) < 100_000 for key in run.store.list_keys("") if key not in keys)


def test_a_damaged_picture_is_told_with_its_row(folder: Path) -> None:
    rows = json.loads((folder / "letters.json").read_text())
    rows[7]["scan"] = "scans/torn.tif"
    (folder / "scans" / "torn.tif").write_bytes(drawn(1)[:500])
    (folder / "letters.json").write_text(json.dumps(rows))
    run = prepared().run
    [told] = unusable_items({split: run.items(split) for split in DATA_SPLITS})
    assert "(id r07) is of no use and counts as failed: scans/torn.tif: the picture is damaged" in told


@pytest.mark.parametrize(("target", "tokens"), [("openai-chat:m", 85 + 170 * 4), ("anthropic:m", 1000)])
def test_pictures_count_in_the_estimate(folder: Path, target: str, tokens: int) -> None:
    run = prepared(target).run
    sizes = {split: len(run.items(split)) for split in DATA_SPLITS}
    [batches] = [stage for stage in estimated(run, sizes).stages if stage.stage == "rollout"]
    text = len(run.benchmark.messages(run.items(Split.TRAIN)[0].public, "")[-1].content) + len(run.skill(0).text)
    assert batches.likely.prompt / batches.calls == pytest.approx(tokens + text / 4, abs=5)


def test_a_batch_job_sends_texts_alone(folder: Path) -> None:
    run = prepared().run
    with pytest.raises(ConfigError, match=r"model\.batch: .* texts alone, and this task has pictures"):
        check_batchable(run.config, run.benchmark)
