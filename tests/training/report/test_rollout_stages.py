"""What the stages of a training roll out, read, decide and store."""

import time
from collections import Counter
from typing import Any

import pytest

from local.standin.economy import RULES
from skillopt_airflow.core.errors import StoreError, StoreUnavailable
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.early_rejection import RunningEvaluation
from skillopt_airflow.core.run.history import StageRollouts
from skillopt_airflow.core.run.state import ReflectedItems, TrackRecord
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.pictures import NO_PICTURES
from skillopt_airflow.core.values.types import Message, Split, Status
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.report.reporting import (
    find_stage,
    label_of,
    planned_rollouts,
    reached_moments,
    rival_before,
    skills_of,
    stages_of,
)
from skillopt_airflow.training.rollouts.evaluation import measured, samples_of
from skillopt_airflow.training.rollouts.rollout_plan import store_plan
from skillopt_airflow.training.run import stage_models
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.stage_models import open_assistants
from skillopt_airflow.training.step.epoch_end import epoch_steps
from skillopt_airflow.training.step.steps import load_step
from tests.training.in_process import InterruptedRun, Training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> TrainingRun:
    training = Training.of(
        train__num_epochs=2,
        train__steps_per_epoch=1,
        preflight=False,
        evaluation__val_limit=12,
        evaluation__test_limit=6,
        publishing__gate_policy="strict",
    )
    training()
    return training.run


@pytest.mark.nightly
def test_every_moment_of_a_finished_run_has_its_stages(trained: TrainingRun) -> None:
    found = {label_of(moment): [*stages_of(trained, moment)] for moment in reached_moments(trained)}
    assert found == {
        "Beginning": ["seed", "test"],
        "Step 1": ["evaluate", "rollout"],
        "Slow update, epoch 1": ["evaluate", "compare_epochs"],
        "Step 2": ["evaluate", "rollout"],
        "Slow update, epoch 2": ["evaluate", "compare_epochs"],
        "End": ["final", "test"],
    }


def test_a_stage_plans_items_under_skills(trained: TrainingRun) -> None:
    step = trained.timeline[1]
    [batch] = planned_rollouts(trained, step, "rollout").values()
    assert batch.item_ids == tuple(ref.id for part in trained.slices(step) for ref in part)
    assert (batch.skills, batch.samples) == (("skills/skill_v0000.md",), (0,))
    evaluation = planned_rollouts(trained, step, "evaluate")
    # What is rolled out ahead for the next step is no part of it.
    assert list(evaluation) == [Split.VAL]
    assert set(evaluation[Split.VAL].item_ids) == {ref.id for ref in trained.item_refs(Split.VAL)}
    names = skills_of(trained, step, "evaluate", evaluation[Split.VAL].skills)
    labels = [one.label for one in names]
    assert labels[0] == "candidate of step 1"
    assert "seed" in labels
    assert all(trained.document(f"{trained.keys.folder}{one.name}").text for one in names)


def test_the_newest_stage_with_rollouts_is_found(trained: TrainingRun) -> None:
    moments = reached_moments(trained)
    newest = find_stage(trained, moments, "", "")
    assert (newest.moment.kind, newest.name, list(newest.splits)) == ("final", "test", [Split.TEST])
    named = find_stage(trained, moments, "steps/step_0001", "rollout")
    assert (named.moment.name, named.name) == ("steps/step_0001", "rollout")
    unknown = find_stage(trained, moments, "steps/step_0001", "x")
    assert (unknown.moment.name, unknown.name) == ("steps/step_0001", "evaluate")
    assert find_stage(trained, moments, "x", "x") == newest
    # What a candidate has to beat.
    beaten = [rival_before(trained, moment) for moment in trained.timeline[:2]]
    assert beaten == [None, "skills/skill_v0000.md"]


def test_a_run_that_has_just_begun() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, evaluation__val_limit=12)
    training.prepare()
    run = training.run
    assert reached_moments(run) == run.timeline[:1]
    found = find_stage(run, reached_moments(run), "", "")
    assert (found.name, len(found.splits[Split.VAL].item_ids)) == ("seed", 12)
    assert [one.label for one in skills_of(run, found.moment, "seed", found.splits[Split.VAL].skills)] == ["seed"]
    store_plan(run, run.timeline[0], "seed", [])
    run.store.delete(run.keys.moment(run.timeline[0]).plan("seed"))
    assert find_stage(run, reached_moments(run), "", "").name == ""


def test_a_step_reflects_on_every_item_of_its_batch(trained: TrainingRun) -> None:
    run, step = trained, trained.timeline[1]
    given = load_step(run, step)
    seen = [rollout.trajectory.item_id for rollout in given.rollouts]
    assert sorted(seen) == sorted(item.id for part in run.slices(step) for item in part)
    assert len(given.scores) == len(seen)
    assert run.store.get_model(run.keys.moment(step).reflected_items, ReflectedItems).item_ids == tuple(sorted(seen))
    assert load_step(run, step) == given


@pytest.mark.nightly
def test_the_outcomes_of_a_run_are_told_by_stage() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, preflight=False)
    failing = {"rollout": Status.TIMEOUT, "test": Status.TRUNCATED}
    training.fail = lambda stage, item_id: failing.get(stage)
    training.why = "no answer in 60 s"
    training()
    history = history_of(training.run)
    found = {outcome.stage: outcome for outcome in history.outcomes}
    assert (found["seed"].scored, found["seed"].failures, found["seed"].truncated) == (24, {}, 0)
    assert (found["rollout"].scored, found["rollout"].failures) == (0, {Status.TIMEOUT: 8})
    assert str(found["rollout"].reason).startswith("8 of 8 items: timeout: no answer in 60 s")
    assert (found["test"].truncated, found["test"].coverage) == (12, 1.0)


@pytest.mark.nightly
def test_an_item_that_was_tried_again_counts_as_it_ended() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, preflight=False)
    training.fail = lambda stage, item_id: Status.TIMEOUT if stage == "seed" else None
    refs = training.prepare()
    training.run_containers(refs)
    training.fail = lambda stage, item_id: None
    training.run_containers(refs)
    training()
    history = history_of(training.run)
    seed = next(outcome for outcome in history.outcomes if outcome.stage == "seed")
    assert seed == StageRollouts(stage="seed", planned=24, scored=24, truncated=0, failures={}, reason=None)
    assert history.rollouts.ran >= 48


class SecondSample:
    """Fails on the second sample of the item that comes first."""

    item = ""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()

    def __call__(self, stage: str, item_id: str) -> Status | None:
        if stage == "preflight":
            return None
        self.item = self.item or item_id
        self.tries[item_id] += 1
        return Status.TIMEOUT if item_id == self.item and self.tries[item_id] == 2 else None


def test_the_item_is_missing_and_no_half_measured_score() -> None:
    training, fail = Training.of(evaluation__samples=2), SecondSample()
    # Chunk by chunk, so that the tries of an item are its samples in order.
    training.fail, training.interrupt_after, training.containers = fail, "start", 1
    with pytest.raises(InterruptedRun):
        training()
    run, state, failed = training.run, training.run.state(training.run.timeline[0]), fail.item
    evaluation = state.current.evaluation
    assert evaluation.scores.keys() == {item.id for item in run.items(Split.VAL)} - {failed}
    assert (evaluation.failures, evaluation.size) == ({Status.TIMEOUT: 1}, 24)
    first_sample = measured(run, Split.VAL, run.skill(0), samples=(0,))
    assert (first_sample.coverage, first_sample.failures) == (1.0, {})
    # An evaluation that ends early counts it alike.
    scores = dict.fromkeys(evaluation.scores, ItemScore(hard=1, soft=1)) | {failed: ItemScore(hard=0, soft=0)}
    items, rules, rollouts = run.item_refs(Split.VAL), run.config.evaluation, samples_of(run, Split.VAL, run.skill(0))
    lost = RunningEvaluation.of(items, rollouts, Evaluation(scores=scores), rules, TrackRecord()).lost()
    early, _ = lost
    assert failed not in early.scores
    assert early.failures == {Status.TIMEOUT: 1}


PATIENCE = 60


def test_calls_are_stored_before_their_task_ends_and_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_models, "STORE_SECONDS", 0.01)
    training = Training.of(budget__max_calls=20)
    training.prepare()
    run, refusals = training.run, [StoreError("no bucket"), StoreUnavailable("no answer")]
    put_bytes = training.store.put_bytes

    def put_without_answer(key: str, body: bytes) -> None:
        if "/usage/" not in f"/{key}" or len(refusals) != 2:
            put_bytes(key, body)
        if "/usage/" in f"/{key}" and refusals:
            raise refusals.pop(0)

    monkeypatch.setattr(training.store, "put_bytes", put_without_answer)
    with open_assistants(run, run.timeline[1], "reflect") as models:

        def ask(question: str) -> None:
            messages = [Message(role="system", content="Answer."), Message(role="user", content=question)]
            models.target.ask("reflect", messages, NO_PICTURES)

        ask("one?")
        # Whoever is killed from here on leaves the call in the table.
        deadline = time.monotonic() + PATIENCE
        while not run.usage.read("searchqa", run.ref.run) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(run.usage.read("searchqa", run.ref.run)) == 1
        monkeypatch.setattr(stage_models, "STORE_SECONDS", PATIENCE)
        ask("two?")
    assert refusals == []
    assert len(run.usage.read("searchqa", run.ref.run)) == 2


@pytest.mark.nightly
def test_both_scores_of_a_step_are_over_the_same_items_also_where_its_candidate_was_rejected_early() -> None:
    training = Training.of(evaluation__val_limit=40, model__concurrency=8)
    training()
    run, early = training.run, 0
    shown = {step.step: step for epoch in (1, 2) for step in epoch_steps(run, epoch)}
    for moment in run.timeline:
        if moment.kind != "step":
            continue
        decision = run.store.get_model(run.keys.moment(moment).gate, GateDecision)
        scores = shown[moment.step].score_before, shown[moment.step].score_after
        measured = decision.against_current
        assert scores == ((measured.other_score, measured.score) if measured.pairs else (None, None))
        early += decision.bound is not None and measured.pairs > 0
        for entry in run.state(moment).buffer.entries:
            if entry.step == moment.step and entry.rejected_edits:
                assert (entry.score_before, entry.score_after) == scores
    assert early


def notes_of(run: TrainingRun, moment: Moment) -> EditApplyReport | None:
    return run.store.find_model(run.keys.moment(moment).notes_apply_report, EditApplyReport)


@pytest.mark.nightly
def test_a_step_that_finds_no_lapse_when_it_is_done_again_has_no_notes() -> None:
    rules = "\n".join(f"- {rule}" for rule in RULES[:3])

    def reply(stage: str, prompt: str, tool: str) -> Any:
        """Find a lapse only as long as the skill lacks the rules."""
        if stage != "reflect_skill_aware":
            return None
        skill = prompt.partition("<skill>\n")[2].partition("\n</skill>")[0]
        notes = [] if RULES[0] in skill else [f"Mind {len(prompt)}."]
        edits = [{"op": "append", "content": rules, "rationale": "r"}]
        return {"failure_patterns": [], "edits": edits, "notes": notes}

    training = Training.of(
        reply=reply,
        optimizer__use_skill_aware_reflection=True,
        optimizer__use_slow_update=False,
        train__num_epochs=1,
    )
    training.fail = lambda stage, item: Status.MODEL_ERROR if stage == "evaluate" else None
    training()
    run = training.run
    first, second = run.timeline[1:3]
    assert notes_of(run, first)
    assert notes_of(run, second)
    training.fail = lambda stage, item: None
    training.clear_steps()
    training()
    noted = run.state(first).current
    assert notes_of(run, first)
    assert noted.has_new_notes
    assert not notes_of(run, second)
    assert run.state(second).current.version == noted.version
