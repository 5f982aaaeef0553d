"""The world: exactly known rules decide its scores, and its optimizer proposes better and worse edits."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.world_model import FEW_EDITS, MANY_EDITS, MISLEADING, RULES, USELESS, WRONG, Economy, World
from benchmarks.searchqa.adapter import BENCHMARK
from local.standin import chat_wire
from local.standin.conversation import Conversation, Turn
from local.standin.directives import recognise
from local.standin.stage_request import ComparedGroups, SeenTrajectory, StageRequest
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.types import Split, Status, Trajectory
from skillopt_airflow.training.history import history_of
from tests.training import in_process

WORLD = World(7)
ITEMS = [f"val-{index}" for index in range(1000)]
SEED = "# Marks\n\n- Look twice.\n"


def failures(skill: str, *item_ids: str, budget: int = 4) -> StageRequest:
    seen = tuple(SeenTrajectory(item_id=item_id) for item_id in item_ids)
    return StageRequest(skill=skill, budget=budget, outcome="failure", trajectories=seen)


def score(skill: str, item_id: str, draw: int = 1) -> float:
    """The adapter's verdict on what the target says to the adapter's messages."""
    item = BENCHMARK.item(WORLD.record(item_id))
    system, user = BENCHMARK.messages(item.public, skill)
    text = WORLD.reply(Conversation("world", system.content, (Turn("user", user.content),)), draw).text
    answered = Trajectory(item_id=item_id, status=Status.OK, answer=BENCHMARK.answer(text))
    return BENCHMARK.score(item, answered).hard


def test_an_item_is_right_exactly_if_the_skill_has_its_rule() -> None:
    needing = [item_id for item_id in ITEMS if WORLD.nature(item_id).rule]
    for item_id in needing[:100]:
        rule = WORLD.nature(item_id).rule
        others = "\n".join(one for one in RULES if one != rule)
        assert score(others, item_id) == 0.0
        assert score(f"{SEED}- {rule}\n", item_id) == 1.0


def test_a_misleading_sentence_spoils_the_items_of_its_place_alone() -> None:
    for item_id in ITEMS[:200]:
        nature, skill = WORLD.nature(item_id), "\n".join(RULES)
        spoilt = [
            place for place in MISLEADING if WORLD.right(item_id, skill, 1) > WORLD.right(item_id, place + skill, 1)
        ]
        assert nature.chance == 0.5 or spoilt == [nature.misleading] * bool(nature.misleading)


@pytest.mark.parametrize("economy", [MANY_EDITS, FEW_EDITS], ids=lambda economy: economy.name)
def test_the_shares_of_the_items_are_those_of_the_world(economy: Economy) -> None:
    world = World(7, economy=economy)
    natures = [world.nature(f"test-{index}") for index in range(5000)]
    kinds = Counter((bool(nature.rule), bool(nature.misleading), nature.chance) for nature in natures)
    shares = {kind: count / len(natures) for kind, count in kinds.items()}
    expected = {
        (True, False, 1.0): economy.needs_rule,
        (False, True, 1.0): economy.needs_nothing,
        (False, False, 0.5): economy.chance,
        (False, False, 0.0): 1 - economy.needs_rule - economy.needs_nothing - economy.chance,
    }
    assert shares == pytest.approx(expected, abs=0.02)
    frequent = Counter(nature.rule for nature in natures if nature.rule)
    assert set(frequent) == set(RULES[: economy.rules])
    # The share of the nth rule is as 1 / (n + 1).
    assert frequent[RULES[0]] / frequent[RULES[economy.rules - 1]] == pytest.approx((economy.rules + 1) / 2, rel=0.5)


def test_an_item_of_chance_depends_on_draw_and_skill_and_on_nothing_else() -> None:
    items = [item_id for item_id in ITEMS if WORLD.nature(item_id).chance == 0.5]
    first = [WORLD.right(item_id, SEED, 1) for item_id in items]
    assert 0.3 < sum(first) / len(items) < 0.7
    assert first == [World(7).right(item_id, SEED, 1) for item_id in items]
    assert first != [WORLD.right(item_id, SEED, 2) for item_id in items]
    assert first != [WORLD.right(item_id, f"{SEED}\n", 1) for item_id in items]


def test_noise_makes_the_target_miss_a_share_of_what_it_would_get_right() -> None:
    noisy, skill = World(7, noise=0.3), "\n".join(RULES)
    right = [item_id for item_id in ITEMS if WORLD.chance(item_id, skill) == 1.0]
    assert {noisy.chance(item_id, skill) for item_id in right} == {0.7}
    assert 0.6 < sum(noisy.right(item_id, skill, 1) for item_id in right) / len(right) < 0.8
    assert not any(noisy.right(item_id, skill, 1) > WORLD.right(item_id, skill, 1) for item_id in ITEMS)


def test_another_seed_is_another_world() -> None:
    assert [World(8).nature(item_id) for item_id in ITEMS] != [WORLD.nature(item_id) for item_id in ITEMS]
    assert World(8).record("val-1")["answers"] != WORLD.record("val-1")["answers"]


def test_what_is_no_item_is_not_known() -> None:
    reply = WORLD.reply(Conversation("world", SEED, (Turn("user", "Are you ready?"),)), 1)
    assert reply.text == f"<answer>{WRONG}</answer>"


def test_no_sentence_is_a_directive_of_the_stand_in() -> None:
    """Its merge and its ranking go by the words then, as long as they know none of them."""
    assert recognise("\n".join([*RULES, *MISLEADING, USELESS.format(day=1)])) == frozenset()


def test_reflection_finds_rules_behind_the_failures_and_slips() -> None:
    item_ids = [item_id for item_id in ITEMS if WORLD.nature(item_id).rule]
    batches = [item_ids[start : start + 8] for start in range(0, 400, 8)]
    proposed: Counter[str] = Counter()
    for batch in batches:
        request = failures(SEED, *batch)
        answer = WORLD.reflect(request)
        assert answer == WORLD.reflect(request)
        assert answer["edits"]
        sentences = {edit["content"].removeprefix("- ") for edit in answer["edits"]}
        assert sentences & set(RULES) <= {WORLD.nature(item_id).rule for item_id in batch}
        proposed["right"] += len(sentences & set(RULES))
        proposed["misleading"] += len(sentences & set(MISLEADING))
        proposed["useless"] += len(sentences - set(RULES) - set(MISLEADING))
    assert min(proposed[kind] for kind in ("right", "misleading", "useless")) >= 5


def test_reflection_proposes_no_rule_that_the_skill_has_and_no_more_than_it_may() -> None:
    everything = "\n".join(f"- {rule}" for rule in RULES)
    edits = [
        edit for start in range(0, 400, 8) for edit in WORLD.reflect(failures(everything, *ITEMS[start:][:8]))["edits"]
    ]
    assert edits
    assert not {edit["content"].removeprefix("- ") for edit in edits} & set(RULES)
    assert all(len(WORLD.reflect(failures(SEED, *ITEMS[start:][:8], budget=1))["edits"]) == 1 for start in range(100))


def test_reflection_takes_out_what_misled_the_target() -> None:
    spoilt = [item_id for item_id in ITEMS if WORLD.nature(item_id).misleading == MISLEADING[0]]
    skill = f"{SEED}- {MISLEADING[0]}\n- {MISLEADING[1]}\n"
    edits = [edit for item_id in spoilt for edit in WORLD.reflect(failures(skill, item_id))["edits"]]
    assert {edit["anchor"] for edit in edits if edit["op"] == "delete"} == {f"- {MISLEADING[0]}"}


def test_successes_change_nothing() -> None:
    assert WORLD.reflect(StageRequest(skill=SEED, outcome="success"))["edits"] == []


def test_guidance_keeps_its_lines_and_adds_rules_that_are_missing() -> None:
    item_ids = [item_id for item_id in ITEMS if WORLD.nature(item_id).rule]
    added = set()
    for start in range(40):
        failing = tuple(SeenTrajectory(item_id=item_id) for item_id in item_ids[start : start + 8])
        request = StageRequest(skill=SEED, guidance="- Former.", comparison=ComparedGroups(persistent_failure=failing))
        first, *rest = WORLD.slow_update(request)["guidance"].splitlines()
        assert first == "- Former."
        added |= {line.removeprefix("- ") for line in rest}
    assert added
    assert added <= set(RULES)


def test_a_stage_that_the_default_settings_do_not_have_is_refused() -> None:
    asked = Conversation("world", "", (Turn("user", ""),), ("rewrite_result",))
    with pytest.raises(ModelError, match=r"reflect_result.*got rewrite_result"):
        WORLD.reply(asked, 1)


@pytest.mark.slow
def test_a_training_learns_rules_and_rejects_some_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WORLD.write_items(tmp_path, {Split.TRAIN: 64, Split.VAL: 40, Split.TEST: 20})
    monkeypatch.setattr(in_process, "stand_in", answered)
    training = in_process.Training.of(
        data__uri=str(tmp_path),
        train__steps_per_epoch=4,
        train__batch_size=16,
        evaluation__val_limit=40,
        evaluation__test_limit=20,
    )
    training()
    history = history_of(training.run)
    assert history.best_val_score > history.seed_val_score
    assert sum(rule in training.skill() for rule in RULES) >= 2
    assert {"accept_new_best", "reject"} <= set(training.actions())
    assert not [fallback for moment in history.moments for fallback in moment.fallbacks]


def answered(request: str) -> str:
    conversation = chat_wire.read(json.loads(request))
    message: dict[str, Any] = chat_wire.answer(conversation, WORLD.reply(conversation, 1))["choices"][0]["message"]
    return json.dumps(message)
