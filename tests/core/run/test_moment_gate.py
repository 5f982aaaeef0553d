"""The gate of a moment by its values alone: no store, no model."""

from dataclasses import replace
from typing import Any

import pytest

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.decision import Action
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.moment_gate import GateInput, SkillVersion, pass_gate
from skillopt_airflow.core.run.state import Measured, ReflectedItems, TrackRecord, seed_state
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import apply_edits, note_edits
from skillopt_airflow.core.values.provenance import LinesOfSkill, seed_lines, trace
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, FailurePattern, ItemRef, Note, Patch, RolloutResult, Status

ITEMS = tuple(ItemRef(f"item-{number}", "", task_types=("even" if number % 2 == 0 else "odd",)) for number in range(4))
SEED = SkillDocument("# Skill\n\n- one\n")
EDIT = Edit(op="append", content="- two")
STEP = Moment(kind="step", epoch=1, step=1)
PATTERN = FailurePattern(description="d", item_ids=("item-0",))


def rollouts(*hard: float | None) -> dict[str, list[RolloutResult]]:
    """One draw per item; None failed."""
    return {
        item.id: [
            RolloutResult(item.id, Status.TIMEOUT, "late", 0.0, None, None)
            if value is None
            else RolloutResult(item.id, Status.OK, "", 0.0, value, value)
        ]
        for item, value in zip(ITEMS, hard, strict=False)
    }


def given(*hard: float | None, current: tuple[float, ...] = (1, 0, 0, 0), **knobs: Any) -> GateInput:
    """A step whose candidate has one more line, and the scores of its items."""
    scores = {item.id: ItemScore(hard=value, soft=value) for item, value in zip(ITEMS, current, strict=True)}
    measured = Measured(version=0, sha256=SEED.sha256, evaluation=Evaluation(scores=scores))
    candidate, report = apply_edits(SEED, (EDIT,))
    lines = seed_lines(SEED, "steps/step_0000")
    return GateInput(
        moment=STEP,
        config=TrainConfig.from_layers({group: dict(values) for group, values in knobs.items()}),
        before=seed_state(Moment(kind="seed", epoch=0, step=0), measured),
        record=TrackRecord(),
        current=SkillVersion(SEED, LinesOfSkill(lines=lines)),
        best=SEED,
        candidate=SkillVersion(candidate, LinesOfSkill(lines=trace(SEED, lines, report, STEP.name))),
        items=ITEMS,
        rollouts=rollouts(*hard),
        report=report,
        ranked=Patch(edits=(EDIT,), failure_patterns=(PATTERN,)),
        reflected=ReflectedItems(item_ids=("item-0",), failed=1),
        notes=(),
        memory=None,
        stop="",
    )


def test_a_better_candidate_becomes_the_next_version() -> None:
    step = given(1, 1, 0, 0)
    _, decision, state, versions, notes = pass_gate(step)
    assert (decision.action, decision.candidate_mean) == (Action.ACCEPT_NEW_BEST, 0.5)
    assert [(one.task_type, one.score) for one in decision.by_type] == [("even", 0.5), ("odd", 0.5)]
    assert (state.moment, state.newest, state.current.version, state.best.version) == (STEP.name, 1, 1, 1)
    assert state.current.sha256 == step.candidate.skill.sha256
    assert versions == {1: step.candidate}
    assert notes is None
    assert state.record.items["item-1"].count == 1
    [entry] = state.buffer.entries
    assert (entry.accepted_edits, entry.failure_patterns, entry.score_after) == ((EDIT,), (PATTERN,), 0.5)


def test_a_candidate_that_cannot_win_any_more_is_rejected_by_the_items_that_show_it() -> None:
    step = given(0, current=(1, 1, 1, 1))
    _, decision, state, versions, _ = pass_gate(step)
    assert (decision.action, decision.bound) == (Action.REJECT, 1.0)
    assert decision.candidate_mean is None
    assert (state.current, versions) == (step.before.current, {})
    whole = replace(step, config=TrainConfig.from_layers({"evaluation": {"early_reject": False}}))
    assert pass_gate(whole).decision.action is Action.INDECISIVE


def test_a_candidate_that_is_the_current_skill_is_not_measured() -> None:
    step = given()
    same = replace(step, candidate=step.current, report=apply_edits(SEED, ())[1])
    _, decision, state, versions, _ = pass_gate(same)
    assert decision.equal
    assert (decision.action, versions, state.record) == (Action.REJECT, {}, step.before.record)
    assert state.buffer.entries[0].rejected_edits == ()


@pytest.mark.parametrize(("hard", "action"), [((0, 0, 0, 0), Action.ACCEPT), ((0, None, 0, 0), Action.INDECISIVE)])
def test_guidance_without_a_gate_is_taken_if_it_was_measured(hard: tuple[float | None, ...], action: Action) -> None:
    step = given(*hard, optimizer={"slow_update_gate": False})
    end = Moment(kind="slow_update", epoch=2, step=1)
    _, decision, state, _, _ = pass_gate(replace(step, moment=end, ranked=None, reflected=None, memory="be brief"))
    assert decision.action is action
    assert (state.meta_skill, state.buffer.entries) == ("be brief", ())


@pytest.mark.parametrize(("hard", "before"), [((1, 1, 0, 0), 1), ((0, 0, 0, 0), 0)])
def test_notes_enter_the_skill_whatever_the_verdict_and_are_not_measured_yet(
    hard: tuple[float, ...], before: int
) -> None:
    step = given(*hard)
    skill = (step.current, step.candidate)[before].skill
    notes = note_edits(SEED, (Note(text="Mind the unit.", minibatch="failure-0"),))
    _, decision, state, versions, report = pass_gate(replace(step, notes=notes, stop="the budget is spent"))
    assert decision.action.accepted == bool(before)
    assert (state.newest, state.current.version, state.best.version) == (before + 1, before + 1, before)
    assert state.current.has_new_notes
    noted = versions[before + 1]
    assert noted.skill == apply_edits(skill, notes)[0]
    assert noted.lines.lines[-2].edit == 1
    assert report is not None
    assert [row.index for row in report.rows] == [1]
    assert state.stopped == "the budget is spent"
