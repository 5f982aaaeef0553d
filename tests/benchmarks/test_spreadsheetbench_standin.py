"""The stand-in on workbooks: its programs run on the sample for real, directive by directive."""

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spreadsheetbench.adapter import BENCHMARK, answer_cells
from benchmarks.spreadsheetbench.scoring import compare
from benchmarks.spreadsheetbench.standin import ON_WORKBOOKS, symptoms
from local.standin.chat_wire import complete
from local.standin.reader import respond
from skillopt_airflow.core.types import Item, Score
from skillopt_airflow.rollout.workspace import ItemFolders

SAMPLE = Path(__file__).parents[2] / "benchmarks" / "spreadsheetbench" / "sample"
SOUND = [directive.name for directive in ON_WORKBOOKS if not directive.tempting]
RULE = {directive.name: f"- {directive.rules[0]}" for directive in ON_WORKBOOKS}
RECORDS = [
    record for split in ("train", "val", "test") for record in json.loads((SAMPLE / split / "items.json").read_text())
]
ITEMS = [BENCHMARK.item(record) for record in RECORDS]


def prompt(item: Item) -> str:
    return BENCHMARK.messages(item.public, "")[1].content


def scored(item: Item, folder: Path, *names: str) -> Score:
    """What the stand-in's program under these directives makes of the item's workbook."""
    skill = "\n".join(RULE[name] for name in names)
    code = BENCHMARK.answer(respond(skill, prompt(item)))
    (source,) = SAMPLE.glob(f"spreadsheet/{item.id}/*init.xlsx")
    (golden,) = SAMPLE.glob(f"spreadsheet/{item.id}/*golden.xlsx")
    output, program = folder / "output.xlsx", folder / "program.py"
    output.unlink(missing_ok=True)
    program.write_text(code)
    runpy.run_path(str(program), {"INPUT_PATH": str(source), "OUTPUT_PATH": str(output)})
    return compare(str(golden), str(output), answer_cells(str(item.public["answer_position"])))


def test_a_preview_of_the_workbook_changes_nothing_that_it_does(tmp_path: Path) -> None:
    for item in ITEMS[:4]:
        (source,) = SAMPLE.glob(f"spreadsheet/{item.id}/*init.xlsx")
        (tmp_path / "input.xlsx").write_bytes(source.read_bytes())
        shown = asyncio.run(BENCHMARK.shown_files(item.public, ItemFolders(tmp_path, tmp_path, 60)))
        assert "Sheet " in shown
        assert respond("", f"{prompt(item)}\n\n{shown}") == respond("", prompt(item))


def test_with_all_sound_directives_every_item_of_the_sample_comes_out_right(tmp_path: Path) -> None:
    assert [item.id for item in ITEMS if scored(item, tmp_path, *SOUND).hard < 1.0] == []


@pytest.mark.parametrize("name", SOUND)
def test_each_sound_directive_is_needed(name: str, tmp_path: Path) -> None:
    others = [one for one in SOUND if one != name]
    assert any(scored(item, tmp_path, *others).hard < 1.0 for item in ITEMS)


@pytest.mark.parametrize("name", ["header_row", "whole_numbers"])
def test_a_tempting_directive_spoils_what_was_right(name: str, tmp_path: Path) -> None:
    assert any(scored(item, tmp_path, *SOUND, name).hard < 1.0 for item in ITEMS)


@pytest.mark.nightly
def test_the_feedback_points_to_the_directive_that_lacks_or_misleads(tmp_path: Path) -> None:
    """Following the symptoms from the bare skill on ends with every item right."""
    for item in ITEMS:
        active = {"header_row", "whole_numbers"}
        for _ in range(len(ON_WORKBOOKS)):
            score, before = scored(item, tmp_path, *active), active
            for name, wanted in symptoms(score.feedback, prompt(item)).items():
                active = active | {name} if wanted else active - {name}
            if active == before:
                break
        assert score.hard == 1.0, (item.id, active)


def test_a_task_that_is_not_understood_leaves_the_workbook_as_it_is(tmp_path: Path) -> None:
    item = ITEMS[0].model_copy(update={"public": {**ITEMS[0].public, "instruction": "Colour the rows."}})
    assert "load_workbook(INPUT_PATH).save(OUTPUT_PATH)" in respond("", prompt(item))
    assert scored(item, tmp_path).hard == 0.0


def test_with_the_tool_it_runs_one_program_and_ends() -> None:
    tool = {"type": "function", "function": {"name": "run_python"}}
    turns: list[dict[str, Any]] = [{"role": "user", "content": BENCHMARK.task(ITEMS[0].public)}]
    request = {"model": "m", "messages": turns, "tools": [tool]}
    message = complete(request)["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert "OUTPUT_PATH" in json.loads(call["function"]["arguments"])["code"]
    turns += [message, {"role": "tool", "tool_call_id": call["id"], "content": "[exit status 0]"}]
    assert complete(request)["choices"][0]["message"]["content"] == "The workbook is saved."
