"""The gate of a moment by its values alone: no store, no model."""

from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.decision import Action
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.paired import paired_values
from skillopt_airflow.core.run.moment_outcome import GateInput, entry_of, pass_gate
from skillopt_airflow.core.run.state import BufferEntry, Measured, ReflectedItems, TrackRecord, seed_state
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import apply_edits, note_edits
from skillopt_airflow.core.values.provenance import LinesOfSkill, SkillVersion, seed_lines, trace
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Edit, FailurePattern, ItemRef, Note, Patch, RolloutResult, Status

ITEMS = tuple(ItemRef(f"item-{number}", "", task_types=("even" if number % 2 == 0 else "odd",)) for number in range(4))
SEED = SkillDocument("# Skill\n\n- one\n")
EDIT = Edit(op="append", content="- two")
STEP = Moment(kind="step", epoch=1, step=1)
PATTERN = FailurePattern(description="d", item_ids=("item-0",))


def rollouts(*hard: float | None) -> dict[str, list[RolloutResult]]:
    """One sample per item; None failed."""
    return {
        item.id: [
            RolloutResult(item.id, Status.TIMEOUT, "late", 0.0, None, None)
            if value is None
            else RolloutResult(item.id, Status.OK, "", 0.0, value, value)
        ]
        for item, value in zip(ITEMS, hard, strict=False)
    }


def scores_of(*hard: float) -> Evaluation:
    return Evaluation(
        scores={item.id: ItemScore(hard=value, soft=value) for item, value in zip(ITEMS, hard, strict=True)}
    )


def given(*hard: float | None, current: tuple[float, ...] = (1, 0, 0, 0), **knobs: Any) -> GateInput:
    """A step whose candidate has one more line, and the scores of its items."""
    measured = Measured(version=0, sha256=SEED.sha256, evaluation=scores_of(*current))
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
        applied=Patch(edits=(EDIT,), failure_patterns=(PATTERN,), fallback="rank: why; merge: why"),
        report=report,
        ranked=Patch(edits=(EDIT,), failure_patterns=(PATTERN,)),
        reflected=ReflectedItems(item_ids=("item-0",), failed=1),
        notes=(),
        memory=None,
        stop="",
    )


def test_a_better_candidate_becomes_the_next_version() -> None:
    step = given(1, 1, 0, 0)
    row, state, versions, notes = pass_gate(step)
    decision = row.decision
    assert (decision.action, decision.candidate_mean) == (Action.ACCEPT_NEW_BEST, 0.5)
    assert [(one.task_type, one.score) for one in decision.by_type] == [("even", 0.5), ("odd", 0.5)]
    assert (state.moment, state.newest, state.current.version, state.best.version) == (STEP.name, 1, 1, 1)
    assert state.current.sha256 == step.candidate.skill.sha256
    assert versions == {1: step.candidate}
    assert notes is None
    assert state.record.items["item-1"].count == 1
    [entry] = state.buffer.entries
    assert (entry.accepted_edits, entry.failure_patterns, entry.score_after) == ((EDIT,), (PATTERN,), 0.5)
    assert row.candidate is not None
    assert (row.candidate.version, row.candidate.score, row.score_after, row.best_score) == (1, 0.5, 0.5, 0.5)
    assert (row.skill_version, row.edits, row.failure_patterns) == (1, step.report.rows, (PATTERN,))
    assert row.fallbacks == ("rank: why", "merge: why")
    assert row.diff.endswith("+- two\n ")


OUTCOMES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), max_size=8)


@hypothesis.given(OUTCOMES, st.booleans())
def test_best_only_rises_and_versions_count_what_was_accepted(outcomes: list[list[float]], gated: bool) -> None:
    state, accepted = given().before, 0
    for number, hard in enumerate(outcomes, start=1):
        before, moment = state, Moment(kind="step", epoch=1, step=number)
        row, state, versions, _ = pass_gate(
            replace(given(*hard, evaluation={"use_gate": gated}), before=state, moment=moment)
        )
        accepted += row.action.accepted
        assert list(versions) == [accepted] * row.action.accepted
        assert (state.moment, state.step, state.newest) == (moment.name, number, accepted)
        assert state.current.version == state.newest, "the current skill is the last one that was accepted"
        assert state.best.version <= state.newest
        assert state.best.evaluation.mean("hard") >= before.best.evaluation.mean("hard")
        assert not gated or state.current.evaluation.mean("hard") >= before.current.evaluation.mean("hard")
        assert len(state.buffer.entries) == number


def test_a_candidate_may_be_better_than_current_and_not_than_best() -> None:
    step = given(1, 1, 0, 0)
    best = step.before.best.model_copy(update={"version": 3, "evaluation": scores_of(1, 1, 1, 0)})
    before = step.before.model_copy(update={"best": best, "step": 4, "newest": 4, "meta_skill": "short edits"})
    row, state, versions, _ = pass_gate(replace(step, before=before, moment=Moment(kind="step", epoch=1, step=5)))
    assert row.action is Action.ACCEPT
    assert (state.step, state.current.version, state.best.version, state.newest) == (5, 5, 3, 5)
    assert (list(versions), state.meta_skill, row.best_score) == ([5], "short edits", 0.75)


def test_a_score_of_0_is_not_better_than_one_of_0() -> None:
    row, state, _, _ = pass_gate(given(0, 0, 0, 0, current=(0, 0, 0, 0)))
    assert (row.action, state.current) == (Action.REJECT, given(current=(0, 0, 0, 0)).before.current)


def test_an_epoch_s_end_takes_no_step() -> None:
    end = Moment(kind="slow_update", epoch=2, step=1)
    _, state, _, _ = pass_gate(replace(given(1, 1, 0, 0), moment=end, ranked=None, reflected=None))
    assert (state.moment, state.step, state.newest, state.buffer.entries) == ("slow_update/epoch_02", 1, 1, ())


def test_a_candidate_that_cannot_win_any_more_is_rejected_by_the_items_that_show_it() -> None:
    step = given(0, current=(1, 1, 1, 1))
    row, state, versions, _ = pass_gate(step)
    decision = row.decision
    assert (decision.action, decision.bound) == (Action.REJECT, 1.0)
    assert decision.reason == (
        "rejected early: 0 of 4 items show that its score is <= 1.0000, not better than current 1.0000"
    )
    assert (decision.candidate_mean, row.candidate, row.cancelled) == (None, None, 3)
    assert (state.current, versions) == (step.before.current, {})
    whole = replace(step, config=TrainConfig.from_layers({"evaluation": {"early_reject": False}}))
    assert pass_gate(whole).row.decision.action is Action.INDECISIVE


def test_a_candidate_that_is_the_current_skill_is_not_measured() -> None:
    step = given()
    same = replace(step, candidate=step.current, report=apply_edits(SEED, ())[1])
    row, state, versions, _ = pass_gate(same)
    decision = row.decision
    assert decision.equal
    assert (row.candidate, row.diff, row.edits, row.cancelled) == (None, "", (), 0)
    assert (decision.action, versions, state.record) == (Action.REJECT, {}, step.before.record)
    assert state.buffer.entries[0].rejected_edits == ()


@pytest.mark.parametrize(("hard", "action"), [((0, 0, 0, 0), Action.ACCEPT), ((0, None, 0, 0), Action.INDECISIVE)])
def test_guidance_without_a_gate_is_taken_if_it_was_measured(hard: tuple[float | None, ...], action: Action) -> None:
    step = given(*hard, optimizer={"slow_update_gate": False})
    end = Moment(kind="slow_update", epoch=2, step=1)
    row, state, _, _ = pass_gate(replace(step, moment=end, ranked=None, reflected=None, memory="be brief"))
    assert row.decision.action is action
    assert (state.meta_skill, state.buffer.entries) == ("be brief", ())


@pytest.mark.parametrize(("hard", "before"), [((1, 1, 0, 0), 1), ((0, 0, 0, 0), 0)])
def test_notes_enter_the_skill_whatever_the_verdict_and_are_not_measured_yet(
    hard: tuple[float, ...], before: int
) -> None:
    step = given(*hard)
    skill = (step.current, step.candidate)[before].skill
    notes = note_edits(SEED, (Note(text="Mind the unit.", minibatch="failure-0"),))
    row, state, versions, report = pass_gate(replace(step, notes=notes, stop="the budget is spent"))
    assert row.action.accepted == bool(before)
    assert [edit.index for edit in row.edits] == [0, 1]
    assert (state.newest, state.current.version, state.best.version) == (before + 1, before + 1, before)
    assert state.current.has_new_notes
    noted = versions[before + 1]
    assert noted.skill == apply_edits(skill, notes)[0]
    assert noted.lines.lines[-2].edit == 1
    assert report is not None
    assert [row.index for row in report.rows] == [1]
    assert state.stopped == "the budget is spent"


REPORT = given().report
WORSE = paired_values([(0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (0.5, 0.5)])
RANKED = Patch(edits=(EDIT,), failure_patterns=(PATTERN,))
SEEN = ReflectedItems(item_ids=("a", "b", "c"), failed=2)


@pytest.mark.parametrize(
    ("action", "tried"),
    [
        (Action.ACCEPT_NEW_BEST, "accepted_edits"),
        (Action.REJECT, "rejected_edits"),
        (Action.UNDERPOWERED, "undecided_edits"),
    ],
)
def test_a_step_leaves_what_it_tried_and_what_came_of_it(action: Action, tried: str) -> None:
    entry = entry_of(1, SEEN, RANKED, REPORT, action, WORSE)
    listed = {name: edits for name, edits in entry if name.endswith("_edits") and edits}
    assert listed == {tried: (EDIT,)}
    assert (entry.items, entry.failed, entry.score_before, entry.score_after) == (3, 2, 0.5, 0.25)
    assert entry.interval == (WORSE.low, WORSE.high)


def test_scores_go_with_edits_that_were_judged() -> None:
    unscored = BufferEntry(step=1, items=3, failed=2, failure_patterns=(PATTERN,))
    assert entry_of(1, SEEN, Patch(failure_patterns=(PATTERN,)), REPORT, Action.REJECT, WORSE) == unscored
    assert entry_of(1, SEEN, RANKED, REPORT, Action.INDECISIVE, WORSE) == unscored
    nothing = entry_of(1, SEEN, RANKED, REPORT, Action.REJECT, paired_values([]))
    assert (nothing.rejected_edits, nothing.score_before, nothing.interval) == ((EDIT,), None, None)
