"""Pictures of a table's rows: checked at prepare, stored once, estimated, and given to who asks about an item."""

import base64
import json
import re
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from PIL import Image

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.values.pictures import marks_in
from skillopt_airflow.core.values.types import DATA_SPLITS, Split
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.prepare.preparation import estimate_run
from skillopt_airflow.training.prepare.records_to_items import unusable_items
from skillopt_airflow.training.report.reporting import view_of, write_report
from skillopt_airflow.training.rollouts.batch_job import BatchWork, check_batchable
from skillopt_airflow.training.run.run import contents, pictures
from skillopt_airflow.training.step.seed_and_final import seed_plan
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


def prepared(target: str = "openai-chat:m", **more: object) -> Training:
    knobs = {"model.target": target, "model.optimizer": "openai-chat:o", "train.batch_size": 10}
    knobs |= {key.replace("__", "."): value for key, value in more.items()}
    training = Training(TrainConfig.from_layers(benchmark_config("letters").model_dump(), nest(knobs)), "letters")
    training.prepare()
    return training


@pytest.mark.nightly
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
        assert marks_in(run.benchmark.messages(item.public, "")[-1].content) == [name]
    # Rows name pictures; only the store of files holds them.
    assert all(len(run.store.get_bytes(key)) < 100_000 for key in run.store.list_keys("") if key not in keys)


@pytest.mark.nightly
def test_a_damaged_picture_is_told_with_its_row(folder: Path) -> None:
    rows = json.loads((folder / "letters.json").read_text())
    rows[7]["scan"] = "scans/torn.tif"
    (folder / "scans" / "torn.tif").write_bytes(drawn(1)[:500])
    (folder / "letters.json").write_text(json.dumps(rows))
    run = prepared().run
    [told] = unusable_items({split: run.items(split) for split in DATA_SPLITS})
    assert "(id r07) is unusable and counts as failed: scans/torn.tif: the picture is damaged" in told


@pytest.mark.nightly
@pytest.mark.parametrize(("target", "tokens"), [("openai-chat:m", 85 + 170 * 4), ("anthropic:m", 1000)])
def test_pictures_count_in_the_estimate(folder: Path, target: str, tokens: int) -> None:
    run = prepared(target).run
    sizes = {split: len(run.items(split)) for split in DATA_SPLITS}
    target = estimate_run(run, sizes).roles[0]
    text = len(run.benchmark.messages(run.items(Split.TRAIN)[0].public, "")[-1].content) + len(run.skill(0).text)
    assert target.likely.prompt / target.calls == pytest.approx(tokens + text / 4, abs=5)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 3, 50])
def test_an_analyst_sees_so_many_pictures_and_knows_the_sizes_of_all(folder: Path, most: int) -> None:
    one_step = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "evaluation__eval_test": False}
    training = prepared(**one_step, gradient__minibatch_size=5, gradient__show_pictures=most)
    training()
    reflected = [prompt for stage, prompt in training.models.prompts if stage == "reflect"]
    told = []
    for prompt in reflected:
        count = len(re.findall(r"^## Item \d+", prompt, re.MULTILINE))
        assert prompt.count("\npicture picture-1.png: 750 x 1000 pixels\n") == count
        told.append(count)
    assert max(told) > 3
    assert [stage for stage, _ in training.models.shown] == ["reflect"] * (len(told) if most else 0)
    expected = [min(most, count) for count in told if most]
    assert sorted(len(shown) for _, shown in training.models.shown) == sorted(expected)
    for _, shown in training.models.shown:
        for label, content in shown.items():
            assert 1 <= int(label.removeprefix("picture-1.png of item ")) <= 5
            assert Image.open(BytesIO(content)).size == (750, 1000)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_report_shows_items_with_their_pictures(folder: Path) -> None:
    training = prepared(train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False)
    training()
    write_report(training.run)
    page = training.store.get_text(training.run.keys.report)
    shown = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    examples = view_of(training.run, write_report(training.run)).examples
    assert len(shown) == len(examples) > 0
    for example, encoded in zip(examples, shown, strict=True):
        image = Image.open(BytesIO(base64.b64decode(encoded)))
        assert image.size == (240, 320)
        colour = image.getpixel((1, 1))
        assert isinstance(colour, tuple)
        assert abs(colour[0] - int(example.item_id[1:]) % 10) <= 3


@pytest.mark.nightly
@pytest.mark.slow
def test_the_comparison_of_two_epochs_knows_what_pictures_there_were(folder: Path) -> None:
    training = prepared(train__num_epochs=2, train__steps_per_epoch=1, evaluation__eval_test=False)
    training()
    [prompt] = [prompt for stage, prompt in training.models.prompts if stage == "slow_update"]
    assert prompt.count("picture picture-1.png: ") == prompt.count("## Item ") > 0


@pytest.mark.nightly
@pytest.mark.slow
def test_what_an_analyst_sees_is_estimated(folder: Path) -> None:
    tokens = []
    for most in (0, 4, 50):
        run = prepared(gradient__show_pictures=most).run
        sizes = {split: len(run.items(split)) for split in DATA_SPLITS}
        optimizer = estimate_run(run, sizes).roles[-1]
        reflections = optimizer.calls / 2 - (run.record.steps_in_epoch + 1) * run.config.train.num_epochs
        tokens.append(optimizer.likely.prompt / reflections)
    picture = 85 + 170 * 4
    assert [more - tokens[0] for more in tokens] == pytest.approx([0, 4 * picture, 8 * picture], abs=2)


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["openai:m", "anthropic:m"])
def test_a_batch_job_has_pictures_in_its_requests(folder: Path, target: str) -> None:
    run = prepared(target).run
    check_batchable(run.config, run.benchmark)
    work = BatchWork(run, seed_plan(run), "p")
    items = {item.id: item for item in run.items(Split.VAL)}
    requests = work.begin(1000, 1_000_000)
    assert len(requests) == len(items) > 0
    for entry, request in zip(work.job.entries, requests, strict=True):
        picture, text = request["prompt"]
        assert text == {"type": "text", "text": " What is the total?"}
        if target == "openai:m":
            kind, _, data = picture["image_url"]["url"].partition(";base64,")
            assert (picture["type"], kind) == ("image_url", "data:image/png")
        else:
            assert (picture["type"], picture["source"]["media_type"]) == ("image", "image/png")
            data = picture["source"]["data"]
        image = Image.open(BytesIO(base64.b64decode(data)))
        assert image.getpixel((1, 1)) == (int(entry.item_id[1:]) % 10, 0, 0)
