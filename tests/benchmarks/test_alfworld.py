import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.alfworld.adapter import BENCHMARK, GAME
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.tasks.protocols import Episode, Observation

FOLDER = benchmarks.project() / "benchmarks" / "alfworld"
OPENING = Observation(
    text="You see a desk 1.\n\nYour task is to: put a mug in desk.", admissible=("go to desk 1", "look")
)
RECORD = {"id": "train:0000", "gamefile": "games/x/game.tw-pddl", "task_type": "pick_and_place_simple"}


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ("<think>x</think><action>Go to desk 1</action>", "go to desk 1"),
        ("<think>a</think><action>take mug 1 from desk 1</action><action>look</action>", "take mug 1 from desk 1"),
        ("I will open the fridge 1 now please", "look"),
        ("<think>你好</think><action>inventory</action>", "inventory"),
        ("</action> <action>open fridge 1", "look"),
        ("<ACTION>Open Fridge 1</ACTION>", "open fridge 1"),
    ],
)
def test_the_command_of_a_reply(reply: str, command: str):
    assert BENCHMARK.action(reply) == command


def test_nothing_of_a_game_is_public_and_a_task_that_is_done_is_all_that_counts():
    item = BENCHMARK.item({**RECORD})
    assert item.public == {}
    assert [(file.name, file.path) for file in item.files] == [(GAME, "games/x/game.tw-pddl")]
    for outcome, score in {"won after 50 actions": 1.0, "not won after 50 actions": 0.0}.items():
        judged = BENCHMARK.score(item, Trajectory(item_id="x", status=Status.OK, answer=outcome))
        assert (judged.hard, judged.soft) == (score, score)


def test_a_world_is_made_of_the_game_without_its_walkthrough():
    game = {"pddl_domain": "d", "grammar": "g", "pddl_problem": "p", "solvable": True, "walkthrough": ["go to desk 1"]}
    given = BENCHMARK.world_files({GAME: json.dumps(game).encode(), "traj_data.json": b"the expert's plan"})
    assert json.loads(given[GAME]) == {"pddl_domain": "d", "grammar": "g", "pddl_problem": "p"}
    assert [*given] == [GAME]
    with pytest.raises(DataError, match="pddl_domain"):
        BENCHMARK.world_files({GAME: b"[]"})


def test_the_first_prompt_shows_the_room_and_the_later_ones_the_last_turns():
    first = BENCHMARK.prompt(Episode(OPENING), 2)
    assert "You see a desk 1." in first
    assert "- go to desk 1\n- look" in first
    assert "<action>" in first

    episode = Episode(OPENING)
    for number in range(1, 4):
        episode = episode.after(f"open drawer {number}", Observation(text=f"Drawer {number} is empty."))
    later = BENCHMARK.prompt(episode, 2)
    assert "Your task is to: put a mug in desk.\nCommands given so far: 3\n" in later
    assert "The last 2 of them" in later
    assert "> open drawer 2\nDrawer 2 is empty.\n> open drawer 3\nDrawer 3 is empty.\n" in later
    assert "drawer 1" not in later
    assert "What you see now: Drawer 3 is empty." in later
    assert "> open" not in BENCHMARK.prompt(episode, 0)
    assert "You see a desk 1." in BENCHMARK.task(OPENING)
    assert BENCHMARK.shown(Observation(text="You put the mug.", won=True)).startswith("You put the mug.\n\n")


def test_splits_are_made_of_a_folder_of_games(tmp_path: Path):
    # A word in the path above the games is none of theirs.
    games = tmp_path / "removable"

    def put(split: str, task: str, solvable: object) -> None:
        game = games / "json_2.1.1" / split / task / "trial_1" / GAME
        game.parent.mkdir(parents=True)
        game.write_text(json.dumps({"solvable": solvable}))

    put("train", "look_at_obj_in_light-Book-None-DeskLamp-302", True)
    put("train", "pick_and_place_simple-Mug-None-Desk-303", False)
    put("train", "pick_and_place_with_movable_recep-Mug-Bowl-Desk-304", True)
    put("train", "pick_heat_then_place_in_recep-AppleSliced-None-Fridge-9", True)
    put("valid_seen", "pick_two_obj_and_place-CD-None-Safe-323", True)
    put("valid_unseen", "pick_clean_then_place_in_recep-Cloth-None-Cart-401", True)
    done = subprocess.run(
        [sys.executable, FOLDER / "make_splits.py", games], capture_output=True, text=True, check=True
    )
    assert done.stdout.count(": 1 games\n") == 3
    (record,) = json.loads((games / "train" / "items.json").read_text())
    assert record == {
        "id": "train:0000",
        "gamefile": f"json_2.1.1/train/look_at_obj_in_light-Book-None-DeskLamp-302/trial_1/{GAME}",
        "task_type": "look_at_obj_in_light",
    }
    (record,) = json.loads((games / "test" / "items.json").read_text())
    assert record["task_type"] == "pick_clean_then_place_in_recep"

    failed = subprocess.run(
        [sys.executable, FOLDER / "make_splits.py", games / "train"], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert "json_2.1.1" in failed.stderr
