import json
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, ItemFile, JsonObject, Split, Status
from skillopt_airflow.quality.quality_report import DataQualityError, QualityReport
from skillopt_airflow.store.data.files import DataFiles, FileStore
from skillopt_airflow.tasks.record_fields import UnreadableRecord
from skillopt_airflow.training.prepare.records_to_items import (
    checked_items,
    read_splits,
    shared_contents,
    shared_documents,
    store_files,
    unusable_items,
    without_duplicates,
)
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from tests.training.in_process import PROJECT, InProcessConnections, Training, configured


@pytest.fixture
def run() -> TrainingRun:
    ref = RunRef(benchmark="spreadsheetbench", run="r", storage=StorageGroup(prefix="team/"))
    return TrainingRun(ref, InProcessConnections())


def item(name: str, golden: str = "golden.xlsx") -> Item:
    return Item(
        id=name,
        public={},
        reference={},
        files=(ItemFile(name="input.xlsx", path="books/*init*.xlsx"),),
        reference_files=(ItemFile(name="golden.xlsx", path=f"books/{golden}"),),
    )


@pytest.fixture
def folder(tmp_path: Path) -> DataFiles:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "1_a_init.xlsx").write_bytes(b"before")
    (tmp_path / "books" / "golden.xlsx").write_bytes(b"after")
    return DataFiles(str(tmp_path), tmp_path, None)  # type: ignore[arg-type]


def test_items_get_the_hashes_of_their_files_which_are_stored_once(run: TrainingRun, folder: DataFiles) -> None:
    plain = Item(id="plain", public={}, reference={})
    items = store_files(run, {Split.TRAIN: [item("a"), plain], Split.VAL: [item("b")]}, folder)
    assert items[Split.TRAIN][1] == plain
    kept = FileStore(run.store, "team/")
    for one in (items[Split.TRAIN][0], items[Split.VAL][0]):
        assert [kept.get(file.sha256) for file in (*one.files, *one.reference_files)] == [b"before", b"after"]
    assert len(run.store.list_keys("team/files/")) == len(run.store.list_keys("")) == 2


def test_an_item_with_a_missing_file_fails_by_itself_and_too_many_refuse_the_split(
    run: TrainingRun, folder: DataFiles, tmp_path: Path
) -> None:
    rows = [item(f"item-{number}") for number in range(19)] + [item("b", "none.xlsx")]
    found = store_files(run, {Split.VAL: rows}, folder)[Split.VAL]
    assert [one.unusable for one in found[:19]] == [""] * 19
    assert f"{tmp_path}/books/none.xlsx: No such file" in found[19].unusable
    assert found[19] == Item(id="b", public={}, reference={}, unusable=found[19].unusable)
    with pytest.raises(DataError, match=rf"val row 2 \(id b\): {tmp_path}/books/none\.xlsx"):
        store_files(run, {Split.VAL: [item("a"), item("b", "none.xlsx")]}, folder)


def record(number: int, **changes: Any) -> JsonObject:
    return {"id": f"q{number}", "question": "q", "context": "c", "answers": ["a"]} | changes


def questions(broken: dict[int, JsonObject]) -> tuple[list[Item], QualityReport]:
    """Forty records of SearchQA as items, some of them changed, by position."""
    training = Training(configured("searchqa", {"model.target": "openai:x"}))
    rows = [broken.get(number, record(number)) for number in range(40)]
    items, quality = checked_items(training.run, training.config, "data", {Split.VAL: rows})
    return items[Split.VAL], quality


def test_few_records_of_no_use_become_items_that_say_why() -> None:
    items, quality = questions({2: record(2, context=" "), 7: {"question": "q", "context": "c", "answers": ["a"]}})
    assert quality.success
    assert {row: item.id for row, item in enumerate(items, start=1) if item.unusable} == {3: "q2", 8: "val-row-8"}
    assert "context" in items[2].unusable
    assert items[7].unusable.startswith("no usable id")
    assert unusable_items({Split.VAL: items})[0].startswith("val row 3 (id q2) ")
    items, quality = questions({3: UnreadableRecord("x.jsonl: line 4: not JSON"), 9: record(8)})
    assert quality.success
    assert {item.id: item.unusable for item in items if item.unusable} == {
        "val-row-4": "x.jsonl: line 4: not JSON",
        "val-row-10": "an earlier record has the same id (val row 9)",
    }
    assert (items[8].id, items[8].unusable) == ("q8", "")


def test_so_is_one_whose_benchmark_finds_half_a_surrogate_pair_within_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = type(benchmarks.load("searchqa"))
    read = benchmark.item

    def item(self: Any, record: JsonObject) -> Item:
        found: Item = read(self, record)
        return found.model_copy(update={"public": found.public | {"hints": json.loads(str(record.get("hints", "[]")))}})

    monkeypatch.setattr(benchmark, "item", item)
    items, quality = questions({5: record(5, hints='["\\ud83d"]')})
    assert quality.success
    assert {one.id: "surrogates" in one.unusable for one in items if one.unusable} == {"q5": True}


def test_more_of_them_refuse_the_split() -> None:
    with pytest.raises(DataQualityError, match=r"context .* val row 1 \(id q0\), val row 2 \(id q1\), val row 3"):
        questions({number: record(number, context=" ") for number in range(3)})
    with pytest.raises(DataQualityError, match=r"the same id .*\(val row 1\) in val row 2 "):
        questions(dict.fromkeys(range(1, 4), record(0)))


def test_a_record_that_the_benchmark_cannot_read_is_one_too(run: TrainingRun) -> None:
    config = configured("spreadsheetbench", {"model.target": "openai:x"})
    rows: list[JsonObject] = [
        {"id": n, "instruction": "i", "instruction_type": "t", "answer_position": "A1", "spreadsheet_path": "s"}
        for n in range(20)
    ]
    rows[4] |= {"answer_position": "the last row"}
    items, _ = checked_items(run, config, "data", {Split.VAL: rows})
    assert [item.id for item in items[Split.VAL] if item.unusable] == ["4"]
    assert {item.task_types for item in items[Split.VAL] if not item.unusable} == {("t",)}
    rows[5] |= {"answer_position": "the last row"}
    with pytest.raises(DataError, match=r"^data: val row 5 \(id 4\): answer_position: .*; 2 of 20 "):
        checked_items(run, config, "data", {Split.VAL: rows})


def test_the_manifest_of_a_run_splits_other_data_in_the_same_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [record(number) for number in range(60)]
    (tmp_path / "all.json").write_text(json.dumps(rows))
    knobs = {"train__num_epochs": 1, "data__limit": None, "evaluation__val_limit": None, "evaluation__test_limit": None}
    first = Training.of(data__uri=str(tmp_path / "all.json"), data__split_mode="ratio", **knobs)
    first.prepare()
    manifest = tmp_path / "data_manifest.json"
    manifest.write_text(first.run.store.get_text(first.run.keys.data_manifest))
    changed = rows[7] | {"question": "another?"}
    lines = [*reversed([changed if row is rows[7] else row for row in rows]), record(60)]
    (tmp_path / "more.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{")
    listed = {"data__split_mode": "manifest", "data__split_manifest": str(manifest)}
    caplog.set_level("INFO")
    second = Training.of(data__uri=str(tmp_path / "more.jsonl"), **listed, **knobs)
    second.prepare()
    for split in DATA_SPLITS:
        ids = [[ref.id for ref in training.run.item_refs(split)] for training in (first, second)]
        assert ids[0] == ids[1]
    assert "2 of 62 records are in no split of data.split_manifest" in caplog.text
    assert caplog.text.count("split changed since") == 1
    (tmp_path / "fewer.json").write_text(json.dumps(rows[1:]))
    with pytest.raises(DataError, match=rf"^data\.split_manifest = {manifest}: ids that no record has: q0$"):
        Training.of(data__uri=str(tmp_path / "fewer.json"), **listed, **knobs).prepare()


@pytest.mark.nightly
def test_such_an_item_fails_in_a_training_without_a_rollout_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in DATA_SPLITS:
        rows = json.loads((PROJECT / "benchmarks/searchqa/sample" / split / "items.json").read_text("utf-8"))[:20]
        rows[0]["answers"] = []
        (tmp_path / split).mkdir()
        (tmp_path / split / "items.json").write_text(json.dumps(rows))
    training = Training.of(data__uri=str(tmp_path), train__num_epochs=1, train__batch_size=20, evaluation__val_limit=20)
    training()
    first = json.loads((tmp_path / "val" / "items.json").read_text())[0]["id"]
    assert f"val row 1 (id {first})" in caplog.text
    assert f"val row 1 (id {first})" in training.run.store.get_text(training.run.keys.quality_page)
    measured = training.run.state(training.run.timeline[0]).current.evaluation
    assert measured.failures == {Status.DATA_ERROR: 1}
    assert len(measured.scores) == 19
    found = training.run.stored(Split.VAL, training.run.skill(0), 0, training.run.item_refs(Split.VAL))
    assert found[first].trajectory.error == "answers is empty"
    assert training.rollouts["seed"] == 19
    counts = history_of(training.run).rollouts
    assert counts.planned == counts.ran + counts.cancelled
    assert counts.reused == 0


def declared(tmp_path: Path, records: list[JsonObject], **task: Any) -> TrainConfig:
    """A benchmark without code whose data are these records, cut in three."""
    (tmp_path / "all.json").write_text(json.dumps(records))
    section = {"prompt": "{{ q }}", "reference": "a", "score": {"by": "exact"}} | task
    return TrainConfig.from_layers(
        {
            "task": section,
            "data": {"uri": str(tmp_path / "all.json"), "split_ratio": "1:1:1"},
            "model": {"target": "x:y"},
        }
    )


def test_copies_of_records_without_an_id_are_left_out_with_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where they are more than may fail; equal texts with another answer are no copies."""
    rows: list[JsonObject] = [{"q": f"q{number}", "a": "x"} for number in range(9)]
    config = declared(tmp_path, [*rows, *rows[:4], {"q": "q0", "a": "y"}, {"a": "x", "q": "q8"}])
    splits, notes = read_splits("searchqa", config, None)  # type: ignore[arg-type]
    assert {split: len(found) for split, found in splits.items()} == {"train": 4, "val": 3, "test": 3}
    assert notes == ("5 of 15 records are copies and left out, such as row 10, which repeats row 1",)
    assert notes[0] in caplog.text
    training = Training(config)
    items, quality = checked_items(training.run, config, "data", splits, notes=notes)
    assert quality.success
    assert quality.notes == notes
    assert not any(item.unusable for found in items.values() for item in found)


def test_lines_that_cannot_be_read_are_no_copies_of_each_other(tmp_path: Path) -> None:
    config = declared(tmp_path, [])
    broken = [UnreadableRecord("line 1"), UnreadableRecord("line 2")]
    record: JsonObject = {"q": "1"}
    kept, notes = without_duplicates(config, {Split.TRAIN: [*broken, record], Split.VAL: [record, {"q": "2"}]})
    assert kept == {Split.TRAIN: [*broken, record], Split.VAL: [{"q": "2"}]}
    assert notes == ("1 of 5 records are copies and left out, such as val row 1, which repeats train row 3",)


def test_an_id_of_the_users_that_occurs_twice_stays_an_error(tmp_path: Path) -> None:
    rows: list[JsonObject] = [{"q": f"q{number}", "a": "x", "key": number} for number in range(9)]
    config = declared(tmp_path, [*rows, rows[0]], id="key")
    splits, notes = read_splits("searchqa", config, None)  # type: ignore[arg-type]
    assert notes == ()
    with pytest.raises(DataQualityError, match=r"the same id .*\(\w+ row \d\) in \w+ row \d"):
        checked_items(Training(config).run, config, "data", splits)


def test_contents_that_train_shares_with_held_out_splits_are_counted() -> None:
    def one(name: str, prompt: str, file: str = "") -> Item:
        files = (ItemFile(name="p.png", path="p.png", picture=True, sha256=file),) if file else ()
        return Item(id=name, public={"prompt": prompt} if prompt else {}, reference={}, files=files)

    shared = shared_contents(
        {
            Split.TRAIN: [one("a", "x"), one("b", "y"), one("c", "What?", "1" * 64), one("d", ""), one("e", "z")],
            Split.VAL: [one("f", "x"), one("g", "x"), one("h", "What?", "2" * 64), one("i", "")],
            Split.TEST: [one("j", "What?", "1" * 64), one("k", "new")],
            Split.PUBLISH: [one("l", "newer")],
        }
    )
    assert [sentence.partition(" split ")[0] for sentence in shared] == ["2 items of the val", "1 items of the test"]
    assert "such as f and a." in shared[0]


def test_documents_that_splits_share_ask_for_groups() -> None:
    def one(name: str, text: str, group: str = "") -> Item:
        return Item(
            id=name, public={"question": name, "context": text, "rules": "Be brief. " * 99}, reference={}, group=group
        )

    first, second, third = ("first " * 99, "second " * 99, "third " * 99)
    train = [one("a", first), one("b", first), one("c", second), one("d", "short")]
    test = [one("e", first), one("f", third), one("g", third), one("h", "short")]
    [note] = shared_documents({Split.TRAIN: train, Split.TEST: test})
    assert "train and test share 1 documents" in note or "test and train share 1 documents" in note
    assert "task.group" in note
    assert shared_documents({Split.TRAIN: train, Split.TEST: [one("f", third)]}) == []
    assert shared_documents({Split.TRAIN: [*train, one("i", first, "g")], Split.TEST: test}) == []


def test_the_published_split_folder_of_skillopt_splits_the_monthly_files(tmp_path: Path) -> None:
    """Its ids are 202602:22, and ours 202602-22."""
    months: dict[Split, list[tuple[str, int]]] = {
        Split.TRAIN: [("202602", 22), ("202511", 1)],
        Split.VAL: [("202602", 8)],
        Split.TEST: [("202512", 3)],
    }
    for split, names in months.items():
        (tmp_path / "id_split" / split).mkdir(parents=True)
        listed = [{"id": f"{month}:{no}", "month": month, "no": no} for month, no in names]
        (tmp_path / "id_split" / split / "items.json").write_text(json.dumps(listed))
    everything = [{"month": month, "no": no} for names in months.values() for month, no in reversed(names)]
    (tmp_path / "all.json").write_text(json.dumps([*everything, {"month": "202601", "no": 1}]))
    knobs = {"uri": str(tmp_path / "all.json"), "split_mode": "manifest", "split_manifest": str(tmp_path / "id_split")}
    config = TrainConfig.from_layers({"data": knobs})
    splits, _ = read_splits("livemathematicianbench", config, None)  # type: ignore[arg-type]
    assert {split: [(row["month"], row["no"]) for row in rows] for split, rows in splits.items()} == months
