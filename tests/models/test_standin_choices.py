import json
from pathlib import Path

import pytest

from benchmarks.livemathematicianbench.adapter import BENCHMARK
from include.core.types import Status, Trajectory
from include.models.standin.reader import respond

PROJECT = Path(__file__).parents[2]
SEED = (PROJECT / "skills" / "livemathematicianbench" / "initial.md").read_text(encoding="utf-8")
WILDCARD = "\n- Leave aside choices that only say that another one is right.\n"
STRONGEST = "\n- Be wary of the strongest option, it often drops a condition that the result needs.\n"
LONGEST = "\n- Pick the longest choice, it was written with the most care.\n"


def accuracy(skill: str) -> float:
    path = PROJECT / "benchmarks" / "livemathematicianbench" / "sample" / "test" / "items.json"
    items = [BENCHMARK.item(record) for record in json.loads(path.read_text(encoding="utf-8"))]
    right = 0.0
    for item in items:
        system, user = BENCHMARK.messages(item.public, skill)
        answer = BENCHMARK.answer(respond(system.content, user.content))
        right += BENCHMARK.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer)).hard
    return right / len(items)


def test_the_directives_on_choices_help_and_the_tempting_one_hurts() -> None:
    seed = accuracy(SEED)
    assert 0.1 <= seed <= 0.4
    assert accuracy(SEED + WILDCARD) > seed
    assert accuracy(SEED + STRONGEST) > seed + 0.1
    assert accuracy(SEED + WILDCARD + STRONGEST) > seed + 0.3
    assert accuracy(SEED + LONGEST) < seed


@pytest.mark.parametrize("prompt", ["Why did you choose that?", "", "A. one\nB. two"])
def test_what_offers_no_choices_is_read_as_before(prompt: str) -> None:
    assert "choices" not in respond(SEED, prompt)
