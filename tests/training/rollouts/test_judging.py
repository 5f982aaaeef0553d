"""Judging workbooks that are made to hurt whoever opens them; each is opened for real, in the score_files's process."""

import io
import json
import os
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from benchmarks.spreadsheetbench.adapter import BENCHMARK
from benchmarks.swebench.scoring import ELSEWHERE
from skillopt_airflow import benchmarks, limited_process
from skillopt_airflow.core.errors import ProcessLost, SandboxError
from skillopt_airflow.core.values.types import Item, Rollout, Status, Trajectory
from skillopt_airflow.sandbox.staging import is_locked
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.tasks.repository_tests import PATCH_FILE, Canaries, RepositoryTestRun, RepositoryTests, RunEnd
from skillopt_airflow.training.rollouts import judging
from skillopt_airflow.training.rollouts.judging import Case, score_files, score_repository
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from tests.sandbox.small_repository import GOLD, RECORD, added
from tests.training.in_process import Training

MEGABYTE = 1024 * 1024
CANARY = "canary-of-the-score_files"
SHEET = "xl/worksheets/sheet1.xml"
HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n'
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'

CASE = Case(
    benchmark="spreadsheetbench",
    item=BENCHMARK.item(
        {
            "id": "1",
            "instruction": "Double.",
            "instruction_type": "Cell-Level Manipulation",
            "answer_position": "A1:A2",
            "spreadsheet_path": "books/1",
        }
    ),
    trajectory=Trajectory(item_id="1", status=Status.OK, files=("output.xlsx",)),
)


def book(*column: Any) -> bytes:
    workbook = Workbook()
    for row, value in enumerate(column, start=1):
        workbook.active.cell(row, 1, value)  # type: ignore[union-attr]
    content = io.BytesIO()
    workbook.save(content)
    workbook.close()
    return content.getvalue()


GOLDEN = {"golden.xlsx": book(1, 2)}


def with_part(name: str, content: bytes, whole: bytes = book(1, 2)) -> bytes:
    """The workbook with one part of its archive replaced or added."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.namelist():
            if part != name:
                new.writestr(part, old.read(part))
        new.writestr(name, content)
    return changed.getvalue()


def sheet(rows: str, before: str = "", dtd: str = "") -> bytes:
    return HEAD + f"{dtd}<worksheet {MAIN}>{before}<sheetData>{rows}</sheetData></worksheet>".encode()


def text_cell(text: str) -> str:
    return f'<row r="1"><c r="A1" t="inlineStr"><is><t>{text}</t></is></c></row>'


def zip_bomb() -> bytes:
    """0.5 GB of blanks in a part that is read whole."""
    content = io.BytesIO(with_part("x", b"x"))
    with (
        zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("xl/comments/comment1.xml", "w", force_zip64=True) as part,
    ):
        for _ in range(500):
            part.write(b" " * MEGABYTE)
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/comments"
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{relation}" Target="/xl/comments/comment1.xml"/></Relationships>'
    )
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("xl/worksheets/_rels/sheet1.xml.rels", HEAD + relations.encode())
    return content.getvalue()


def zip_bomb_of_cells() -> bytes:
    """0.5 GB of texts, each a cell's own."""
    text = "x" * 32_000
    row = '<row r="{row}"><c r="A{row}" t="inlineStr"><is><t>{text}</t></is></c></row>'
    return with_part(SHEET, sheet("".join(row.format(row=number, text=text) for number in range(1, 16_000))))


LAUGHS = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


def billion_laughs() -> bytes:
    return with_part(SHEET, sheet(text_cell("&a9;"), dtd=f"<!DOCTYPE worksheet [{LAUGHS}]>"))


def quadratic_entity() -> bytes:
    entity = f'<!DOCTYPE worksheet [<!ENTITY a "{"x" * 100_000}">]>'
    return with_part(SHEET, sheet(text_cell("&a;" * 100_000), dtd=entity))


def external_entity(folder: Path) -> bytes:
    entity = f'<!DOCTYPE worksheet [<!ENTITY a SYSTEM "{(folder / "secret").as_uri()}">]>'
    return with_part(SHEET, sheet(text_cell("&a;"), dtd=entity))


def linked_archive(folder: Path) -> bytes:
    """A part that is a symbolic link, one with an absolute name and one that climbs out."""
    content = io.BytesIO(book(1, 2))
    with zipfile.ZipFile(content, "a") as archive:
        link = zipfile.ZipInfo("xl/media/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, str(folder / "secret"))
        archive.writestr(str(folder / "written"), "x")
        archive.writestr("../../../../../../tmp/skillopt-climbed-out", "x")
    return content.getvalue()


def laughing_strings() -> bytes:
    content = f"<!DOCTYPE sst [{LAUGHS}]><sst {MAIN}><si><t>&a9;</t></si></sst>".encode()
    types = zipfile.ZipFile(io.BytesIO(book(1, 2))).read("[Content_Types].xml").decode()
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    listed = types.replace("</Types>", f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>')
    return with_part("xl/sharedStrings.xml", HEAD + content, whole=with_part("[Content_Types].xml", listed.encode()))


def deep_nesting() -> bytes:
    return with_part("xl/styles.xml", HEAD + f"<styleSheet {MAIN}>".encode() + b"<a>" * 500_000)


def as_judge(lines: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have these lines run in the score_files's process before its own program."""
    program = folder / "score_files"
    program.write_text(
        f"#!{limited_process.sys.executable}\nimport json, os, resource, runpy, sys\n{lines}"
        "sys.argv = sys.argv[3:]\n"
        "runpy.run_module('skillopt_airflow.limited_process', run_name='__main__')\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(limited_process.sys, "executable", str(program))


def with_less_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What grows until the memory ends takes long to fill that of the product; the limit is set by it all the same."""
    lines = (
        "setrlimit = resource.setrlimit\n"
        "def lower(which, limits):\n"
        f"    setrlimit(which, ({400 * MEGABYTE},) * 2 if which == resource.RLIMIT_AS else limits)\n"
        "resource.setrlimit = lower\n"
    )
    as_judge(lines, folder, monkeypatch)


HOSTILE: Mapping[str, Callable[..., bytes]] = {
    "zip bomb": zip_bomb,
    "zip bomb of cells": zip_bomb_of_cells,
    "billion laughs": billion_laughs,
    "billion laughs in the shared strings": laughing_strings,
    "quadratic entity": quadratic_entity,
    "deep nesting": deep_nesting,
    "truncated": lambda: book(1, 2)[:-700],
    "empty": lambda: b"",
    "another archive": lambda: with_part("x", b"x", whole=b"PK\x05\x06" + b"\0" * 18),
}


REPEATED = ("zip bomb of cells", "billion laughs in the shared strings", "empty", "another archive")
"""Others of their kind are always tried."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.nightly if kind in REPEATED else ()) for kind in HOSTILE]
)
def test_a_hostile_workbook_scores_zero_and_the_target_is_told_why(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind.startswith("zip bomb"):
        with_less_memory(tmp_path, monkeypatch)
    score = score_files(CASE, {"output.xlsx": HOSTILE[kind]()}, GOLDEN)
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert "cannot be read as a workbook" in score.feedback or "could not be read within" in score.feedback
    assert len(score.feedback) < 400


def test_a_workbook_without_sheets_is_wrong_even_where_nothing_is_expected() -> None:
    none = with_part("xl/workbook.xml", HEAD + f"<workbook {MAIN}/>".encode())
    score = score_files(CASE, {"output.xlsx": none}, {"golden.xlsx": book()})
    assert (score.hard, score.feedback.splitlines()[0]) == (0.0, "the sheet 'Sheet' is missing")


def test_a_huge_declared_size_costs_nothing() -> None:
    rows = '<row r="1"><c r="A1"><v>1</v></c></row><row r="2"><c r="A2"><v>2</v></c></row>'
    far = f'{rows}<row r="1048576"><c r="XFD1048576"><v>3</v></c></row>'
    huge = with_part(SHEET, sheet(far, before='<dimension ref="A1:XFD1048576"/>'))
    assert score_files(CASE, {"output.xlsx": huge}, GOLDEN).hard == 1.0


@pytest.mark.nightly
@pytest.mark.slow
def test_whole_columns_of_a_workbook_without_end_are_judged_within_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_less_memory(tmp_path, monkeypatch)
    item = CASE.item.model_copy(update={"public": {**CASE.item.public, "answer_position": "A:ZZ"}})
    far = with_part(SHEET, sheet('<row r="1048576"><c r="XFD1048576"><v>3</v></c></row>'))
    score = score_files(CASE.model_copy(update={"item": item}), {"output.xlsx": far}, GOLDEN)
    assert score.hard == 0.0
    assert "could not be read within 30 s and 1024 MB" in score.feedback


def test_links_climbing_names_and_external_entities_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(CANARY)
    score = score_files(CASE, {"output.xlsx": linked_archive(tmp_path)}, GOLDEN)
    assert score.hard == 1.0
    assert CANARY not in score.feedback
    assert not (tmp_path / "written").exists()
    assert not Path("/tmp/skillopt-climbed-out").exists()
    score = score_files(CASE, {"output.xlsx": external_entity(tmp_path)}, GOLDEN)
    assert score.hard == 0.0
    assert CANARY not in score.feedback


def test_a_reference_to_another_workbook_is_not_followed() -> None:
    formula = '<row r="1"><c r="A1"><f>[1]Sheet1!$A$1</f></c></row>'
    links = b'<externalReferences xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"/>'
    score = score_files(CASE, {"output.xlsx": with_part("xl/externalLinks/externalLink1.xml", HEAD + links)}, GOLDEN)
    assert score.hard == 1.0
    score = score_files(CASE, {"output.xlsx": with_part(SHEET, sheet(formula))}, GOLDEN)
    assert "found a formula, which nothing calculates" in score.feedback


def test_a_workbook_with_another_value_has_half_a_score() -> None:
    other = score_files(CASE, {"output.xlsx": book(1, 3)}, GOLDEN)
    assert (other.hard, other.soft) == (0.0, 0.5)


@pytest.mark.nightly
def test_a_reference_that_cannot_be_read_is_nobody_s_score() -> None:
    with pytest.raises(SandboxError, match=r"item 1 of spreadsheetbench .* reference files are at fault"):
        score_files(CASE, {"output.xlsx": book(1, 2)}, {"golden.xlsx": b"broken"})


def test_a_judge_that_cannot_start_is_nobody_s_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_process.sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxError, match="cannot start"):
        score_files(CASE, {"output.xlsx": book(1, 2)}, GOLDEN)
    monkeypatch.setattr(limited_process.sys, "executable", "/bin/false")
    with pytest.raises(SandboxError, match=r"did not get ready: .*exit status 1"):
        score_files(CASE, {"output.xlsx": book(1, 2)}, GOLDEN)


def test_the_folder_of_a_judge_is_swept_when_its_task_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def start(process: Any) -> Any:
        held.append(is_locked(process._folder.parent))
        raise ProcessLost("no memory", None, "")

    monkeypatch.setattr(limited_process.LimitedProcess, "_start", start)
    with pytest.raises(SandboxError, match="no memory"):
        score_files(CASE, {}, GOLDEN)
    assert held == [True]


def judging_by(shell: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a shell script for a score_files, which has got ready."""
    program = folder / "score_files"
    program.write_text(f'#!/bin/sh\nread -r request\necho \'{{"refused": "", "bytes": 0}}\'\n{shell}\n')
    program.chmod(0o755)
    monkeypatch.setattr(limited_process.sys, "executable", str(program))


@pytest.mark.parametrize(("shell", "end"), [("exec sleep 60", "more than 1 s"), ("kill -KILL $$", "was killed")])
def test_a_judge_that_had_no_time_or_was_killed_is_nobody_s_score(
    shell: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "LIMITS", judging.LIMITS._replace(wall_seconds=1))
    judging_by(shell, tmp_path, monkeypatch)
    with pytest.raises(SandboxError, match=f"item 1 of spreadsheetbench .* {end}"):
        score_files(CASE, {"output.xlsx": book(1, 2)}, GOLDEN)


@pytest.mark.parametrize("end", ["kill -XCPU $$", "kill -SEGV $$", "exit 1"])
def test_a_judge_that_a_workbook_uses_up_scores_zero(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score_json = '{"hard": 0, "soft": 0, "feedback": "no output.xlsx was saved"}'
    without = f"""read -r case; printf '%s\\n%s' '{{"refused": "", "bytes": {len(score_json)}}}' '{score_json}'"""
    judging_by(f"if [ -e produced/output.xlsx ]; then {end}; else {without}; fi", tmp_path, monkeypatch)
    score = score_files(CASE, {"output.xlsx": book(1, 2)}, GOLDEN)
    assert (score.hard, score.soft) == (0.0, 0.0)
    assert "could not be read within 30 s and 1024 MB" in score.feedback


def test_the_judge_has_limits_and_nothing_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a score_files of the test's own finds in its process."""
    lines = (
        "from skillopt_airflow import benchmarks\n"
        "from skillopt_airflow.core.values.types import Score\n"
        "def found(*_):\n"
        "    names = ('AS', 'CPU', 'FSIZE', 'CORE')\n"
        "    limits = [resource.getrlimit(getattr(resource, f'RLIMIT_{name}')) for name in names]\n"
        "    return Score(hard=0, soft=0, feedback=json.dumps([limits, dict(os.environ), os.listdir('.')]))\n"
        "type(benchmarks.load('spreadsheetbench')).score_files = lambda self, *files: found()\n"
    )
    as_judge(lines, tmp_path, monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_SKILLOPT_TARGET", CANARY)
    limits, environment, folder = json.loads(score_files(CASE, {"output.xlsx": book(1, 2)}, GOLDEN).feedback)
    assert [limits[0], *limits[2:]] == [[1024 * MEGABYTE] * 2, [MEGABYTE] * 2, [0, 0]]
    # Seconds of a processor from now on, at whose end a signal tells it from a process that the kernel ends for memory.
    assert 30 < limits[1][0] < 60
    assert CANARY not in str(environment)
    assert environment["OPENPYXL_LXML"] == "False"
    assert not [name for name in environment if name.startswith(("AIRFLOW", "AWS"))]
    assert sorted(folder) == ["produced", "references"]
    assert os.environ["AIRFLOW_CONN_SKILLOPT_TARGET"] == CANARY


BENCHMARK = benchmarks.load("swebench")
OTHER = GOLD.replace("+    return sum(amounts)", "+    return sum(list(amounts))")
FIXED, STAYED = "tests/test_sums.py::test_all_the_amounts", "tests/test_sums.py::test_none"


class Runs:
    """Runs in which all tests pass."""

    def __init__(self) -> None:
        self.orders: list[RepositoryTests] = []

    def __call__(self, item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
        self.orders.append(wanted)
        canaries = Canaries.draw("pytest", wanted.files, random.Random(0))
        passed = (f"{canaries.first}::{canaries.passing[0]}", f"{canaries.last}::{canaries.passing[1]}", FIXED, STAYED)
        lines = [f"PASSED {one}" for one in passed] + [f"FAILED {canaries.last}::{canaries.failing} - assert 1 == 2"]
        text = "\n".join(["=== short test summary info ===", *lines, "=== 1 failed, 4 passed in 0.01s ===", ""])
        return RepositoryTestRun(end=RunEnd.RAN, output=text, exit_status=1, canaries=canaries)


def judged(change: bytes, run: Any, recorded: str = "") -> Rollout:
    item = BENCHMARK.item({**RECORD, "patch": recorded})
    left = Trajectory(item_id=item.id, status=Status.OK)
    return score_repository(BENCHMARK, item, left, {"patch.diff": change}, run)


@pytest.mark.parametrize(
    ("change", "recorded", "told"),
    [
        (OTHER, GOLD, ""),
        (OTHER, "", ""),
        (added("ledger/more.py", "MORE = 1"), GOLD, ELSEWHERE),
        (OTHER + added("ledger/more.py", "MORE = 1"), GOLD, ""),
    ],
    ids=["same file", "nothing recorded", "another file", "both"],
)
def test_the_tests_run_once_and_the_feedback_notes_a_fix_elsewhere(change: str, recorded: str, told: str) -> None:
    run = Runs()
    found = judged(change.encode(), run, recorded)
    assert found.score.feedback == f"resolved: 1 of 1 tests of the issue pass. {told}".strip()
    assert (found.score.hard, found.score.soft, len(run.orders)) == (1.0, 1.0, 1)


def test_a_file_of_another_encoding_is_judged_by_its_bytes_and_stored_as_unicode() -> None:
    run = Runs()
    change = OTHER.encode() + (
        b"diff --git a/NOTES b/NOTES\n--- a/NOTES\n+++ b/NOTES\n"
        b"@@ -1 +1 @@\n-na\xefve sums\n+na\xefve, but right sums\n"
    )
    found = judged(change, run)
    assert [order.patch.encode(errors="surrogateescape") for order in run.orders] == [change]
    assert "na\N{REPLACEMENT CHARACTER}ve" in found.model_dump_json()
    # What a score_files could not say of it is not asked again of what is stored, which is another change.
    for patch, status in ((change, Status.SANDBOX_ERROR), (OTHER.encode(), Status.JUDGE_ERROR)):
        failed = judged(patch, away)
        assert (failed.trajectory.status, failed.score) == (status, None)


def test_a_change_that_is_too_large_is_not_judged() -> None:
    change = OTHER + "--- /dev/null\n+++ b/more.py\n@@ -0,0 +1,20000 @@\n" + "+MORE = 1\n" * 20_000
    found = judged(change.encode(), away)
    assert found.score.feedback.startswith("too_large: ")


def away(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
    raise SandboxError("the engine went away")


def test_an_engine_that_was_away_judges_later_without_another_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = "skillopt_airflow.training.rollouts.workload.engine_test_runner"
    trained = Training.of("swebench", evaluation__val_limit=1, evaluation__test_limit=None)
    monkeypatch.setattr(runner, lambda *_: away)
    work = ChunkWorkload(trained.run, trained.prepare()[0], "in-process")
    [item] = work.items
    left = Trajectory(item_id=item.id, status=Status.OK, files=(PATCH_FILE,))
    work.record([Outcome(left, {PATCH_FILE: OTHER.encode()})], [])
    assert [(one.status, one.hard, one.error) for one in work.ended()] == [
        (Status.JUDGE_ERROR, None, "the engine went away")
    ]
    orders = Runs()
    monkeypatch.setattr(runner, lambda *_: orders)
    again = ChunkWorkload(trained.run, trained.prepare()[0], "in-process")
    again.judge_again()
    assert not again.items
    assert [order.patch for order in orders.orders] == [OTHER]
    assert [one.status for one in again.ended()] == [Status.OK]
