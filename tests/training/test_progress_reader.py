"""A training that somebody watches: what is seen from before its first write to after its publication."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from local.standin.economy import RULES
from skillopt_airflow.core.budget import spent
from skillopt_airflow.core.errors import NewerDocument
from skillopt_airflow.core.gate import Action
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.types import Split, Status
from skillopt_airflow.report.summary import score
from skillopt_airflow.training.history import history_of
from skillopt_airflow.training.progress import Progress
from skillopt_airflow.training.progress_reader import ProgressReader
from skillopt_airflow.training.reporting import view_of
from skillopt_airflow.training.rollout_plan import RolloutPlan
from tests.training.in_process import InterruptedRun, Training, step_keys

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
PRICES = {
    "openai-chat:stand-in-target": {"input": 1.0, "output": 4.0},
    "openai-chat:stand-in-optimizer": {"input": 10.0, "output": 40.0},
}


class Watched:
    """A training in which a write takes a second, and its reader."""

    def __init__(self, **overrides: Any) -> None:
        self.training = Training.of(**overrides)
        self.now = BEGIN
        self.training.store.clock = self._tick
        self.reader = ProgressReader(self.training.store, self.training.run.keys)

    def _tick(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def look(self) -> Progress:
        found = self.reader.read(self.now)
        assert found is not None
        return found

    def until(self, task: str) -> Progress:
        """How far it is when the process dies behind a task."""
        self.training.interrupt_after = task
        with suppress(InterruptedRun):
            self.training()
        return self.look()


@pytest.fixture(scope="module")
def watched() -> Watched:
    """A whole training that is published, looked at before each of its writes."""
    rules = iter(RULES[-4:])

    def reply(stage: str, prompt: str, tool: str) -> Any:
        edit = {"op": "append", "anchor": "", "rationale": "r"}
        return {"edits": [edit | {"content": f"- {next(rules)}"}]} if stage == "meta_reflect" else None

    watched = Watched(
        reply=reply,
        train__num_epochs=2,
        train__steps_per_epoch=1,
        optimizer__use_meta_reflect=True,
        budget__max_calls=5000,
        budget__prices=PRICES,
        publishing__gate_policy="strict",
    )
    watched.seen = seen = []  # type: ignore[attr-defined]
    reading: list[str] = []

    def look(key: str) -> None:
        if not reading and "/answers/" not in key:
            reading.append(key)
            seen.append(watched.reader.read(watched.now))
            reading.pop()

    watched.training.store.before_write = look
    watched.training()
    watched.training.publish("run")
    look("")
    return watched


@pytest.fixture(scope="module")
def seen(watched: Watched) -> list[Progress]:
    """What was seen once there was something to see."""
    found: list[Progress | None] = watched.seen  # type: ignore[attr-defined]
    assert found[0] is None
    return [one for one in found if one is not None]


def changes(values: list[Any]) -> Iterator[Any]:
    """The values without those that are equal to the one before."""
    return (value for before, value in pairwise([None, *values]) if value != before)


@pytest.mark.nightly
def test_every_stage_is_seen_in_its_order(seen: list[Progress]) -> None:
    step = ["rollout", "reflection", "selection", "evaluation", "gate"]
    meta = ["meta_reflect", "evaluation", "gate"]
    slow = ["longitudinal", "slow_update", "evaluation", "gate"]
    memory = ["longitudinal", "slow_update", "gate"]
    expected = ["preparation", "seed", *step, *memory, *meta, *step, *slow, *meta]
    expected += ["final", "test", "report", "publication", "over"]
    assert list(changes([one.stage.name for one in seen])) == expected


@pytest.mark.nightly
def test_the_moment_under_way_has_the_name_that_people_use(seen: list[Progress]) -> None:
    ends = ["Slow update, epoch 2", "Meta reflect, epoch 2"]
    expected = ["", "Step 1", "Slow update, epoch 1", "Meta reflect, epoch 1", "Step 2", *ends, ""]
    assert list(changes([one.stage.moment for one in seen])) == expected


@pytest.mark.parametrize(
    ("stage", "planned"), [("seed", 24), ("rollout", 8), ("evaluation", 24), ("longitudinal", 12), ("publication", 24)]
)
def test_rollouts_of_a_stage_are_counted_to_the_last(seen: list[Progress], stage: str, planned: int) -> None:
    counted = [one.stage for one in seen if one.stage.name == stage and one.stage.done is not None]
    # After the first epoch there is nothing to compare.
    assert {one.planned for one in counted} - {0} == {planned}
    # With its last rollout an evaluation is over, and the gate's turn comes.
    assert max(one.done or 0 for one in counted) == (16 if stage == "evaluation" else planned)
    for before, after in pairwise(counted):
        assert before.done is not None
        assert after.done is not None
        assert after.moment != before.moment or before.done <= after.done <= planned


def test_nothing_that_was_done_or_spent_is_taken_back(seen: list[Progress]) -> None:
    for before, after in pairwise(seen):
        assert after.moments[: len(before.moments)] == before.moments
        assert after.steps >= before.steps
        assert after.spent.calls >= before.spent.calls
        assert after.spent.tokens >= before.spent.tokens


def test_the_end_says_what_the_history_does(watched: Watched, seen: list[Progress]) -> None:
    history, last = history_of(watched.training.run), seen[-1]
    assert [one.name for one in last.moments] == [one.name for one in history.moments]
    assert [one.decision for one in last.moments] == [one.decision for one in history.moments]
    assert [one.best_score for one in last.moments] == [one.best_score for one in history.moments]
    assert last.steps == last.total_steps == 2
    assert last.best is not None
    assert last.seed is not None
    assert (last.seed.score, last.best.score) == (history.seed_val_score, history.best_val_score)
    assert last.best.version == history.best_version
    assert last.published.startswith("v0001-")


def test_scores_have_the_intervals_of_the_report(watched: Watched, seen: list[Progress]) -> None:
    run, last = watched.training.run, seen[-1]
    final = run.state(run.timeline[-1])
    rules = run.config.evaluation
    assert last.best == SplitScore.of(final.best.evaluation, rules, version=final.best.version)
    assert last.current == SplitScore.of(final.current.evaluation, rules, version=final.current.version)
    accepted = [one for one in last.moments if one.decision.action.accepted]
    for one in accepted:
        assert one.candidate is not None
        found = run.state(run.timeline[[moment.name for moment in run.timeline].index(one.name)]).current.evaluation
        score = SplitScore.of(found, rules, version=0)
        assert (one.candidate.low, one.candidate.score, one.candidate.high) == (score.low, score.score, score.high)
        assert one.score_after == score.score
    early = [one for one in last.moments if one.decision.bound is not None]
    assert all(one.candidate is None for one in early)


def test_what_was_spent_is_what_the_usage_table_has(watched: Watched, seen: list[Progress]) -> None:
    run, last = watched.training.run, seen[-1]
    calls = list(run.usage.calls(run.ref.benchmark, run.account))
    total = spent(calls, run.prices)
    assert (last.spent.calls, last.spent.tokens) == (total.calls, total.tokens)
    assert last.spent.usd == pytest.approx(total.usd)
    by_role = {one.role: one.calls for one in last.roles}
    assert by_role == {role: sum(call.role == role for call in calls) for role in ("target", "optimizer")}
    assert last.budget.max_calls == 5000


def test_the_estimate_is_that_of_the_beginning(seen: list[Progress]) -> None:
    estimates = {one.estimate.model_dump_json() for one in seen if one.estimate is not None}
    assert len(estimates) == 1
    last = seen[-1]
    assert last.estimate is not None
    assert last.estimate.usd_most is not None
    assert last.spent.usd is not None
    assert last.spent.usd <= last.estimate.usd_most
    assert all(one.calls <= last.estimate.calls[one.role] for one in last.roles)


def test_the_end_is_unknown_before_the_first_step_and_falls_with_each(seen: list[Progress]) -> None:
    assert all((one.left is None) == (one.steps == 0 or one.stage.name == "over") for one in seen)
    known = [(one.stage.moment, one.left) for one in seen if one.left is not None]
    assert all(left.low <= left.high for _, left in known)
    assert all(after.high <= before.high for (at, before), (then, after) in pairwise(known) if at == then != "")


def test_a_run_that_reads_again_reads_only_what_is_new(watched: Watched) -> None:
    read: list[str] = []
    store, folder = watched.training.store, watched.training.run.keys.folder
    store.before_read = read.append
    try:
        watched.look()
    finally:
        store.before_read = lambda key: None
    assert {key.removeprefix(folder) for key in read} == {"config.json", "runtime_state.json", "history.json"}


@pytest.mark.nightly
def test_a_run_that_its_budget_stops() -> None:
    stopped = Watched(budget__max_calls=100, reports=True)
    ended = stopped.until("")
    assert "budget.max_calls = 100" in ended.stopped
    assert 0 < ended.steps < ended.total_steps
    assert len(ended.moments) == ended.steps
    # Stopped runs are not tested, so that nothing but the report is left.
    assert ended.stage.name == "publication"
    assert ended.left == (0.0, 0.0)
    stopped.training.publish("run")
    assert stopped.look().stage.name == "over"
    assert "the run was stopped" in stopped.look().withheld


def test_a_process_that_dies_leaves_what_it_has_done() -> None:
    died = Watched(train__num_epochs=1)
    begun = died.until("steps/step_0001/update")
    assert (begun.stage.name, begun.stage.moment, begun.stage.done) == ("evaluation", "Step 1", 0)
    again = died.until("steps/step_0002/rollout")
    assert (again.steps, again.stage.name, again.stage.done, again.stage.planned) == (1, "rollout", 8, 8)
    assert again.left is not None


def test_a_candidate_that_is_taken_without_a_score_leaves_none_and_the_next_one_has_its_own() -> None:
    watched = Watched(train__num_epochs=1, evaluation__use_gate=False, evaluation__eval_test=False)
    training = watched.training
    training.prepare()
    step = training.run.timeline[1]

    def fail(stage: str, item_id: str) -> Status | None:
        return Status.TIMEOUT if stage == "evaluate" and not training.run.committed(step) else None

    training.fail = fail
    ended = watched.until("")
    report = view_of(training.run, history_of(training.run)).moments
    first, second = ended.moments
    assert first.candidate is None
    assert second.candidate is not None
    assert report[1].candidate is not None
    assert second.candidate.score == report[1].candidate.score
    shown, reported = ([score(one.score_after) for one in moments] for moments in (ended.moments, report))
    assert shown == reported
    assert shown[0] == "–"


def test_a_candidate_that_is_the_current_skill_was_not_measured() -> None:
    def idle(stage: str, prompt: str, tool: str) -> Any:
        return {"failure_patterns": [], "edits": []} if stage == "reflect" else None

    watched = Watched(reply=idle, train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False)
    [step] = watched.until("").moments
    assert step.decision.equal
    assert step.candidate is None
    assert (step.decision.density, step.decision.by_type, step.decision.candidate_mean) == (None, (), None)


def test_where_items_lack_a_score_the_page_has_one_score_for_a_skill() -> None:
    watched = Watched(train__num_epochs=1, train__steps_per_epoch=1, evaluation__val_limit=40)
    training = watched.training
    training.prepare()
    failed = {ref.id for ref in training.run.item_refs(Split.VAL)[:2]}
    training.fail = lambda stage, item_id: Status.TIMEOUT if stage == "seed" and item_id in failed else None
    ended = watched.until("")
    [step] = [one for one in ended.moments if one.kind == "step"]
    assert step.decision.action is Action.ACCEPT_NEW_BEST
    assert step.candidate is not None
    assert step.candidate.score != step.decision.against_current.score
    report = view_of(training.run, history_of(training.run)).moments[0]
    assert report.candidate is not None
    assert step.candidate.score == report.candidate.score
    assert step.score_after == report.score_after
    assert step.best_score == report.best_score


def test_a_run_that_is_prepared_again_shows_its_new_settings() -> None:
    watched = Watched(train__num_epochs=1)
    watched.training.prepare()
    assert watched.look().budget.max_calls is None
    again = Training.of(train__num_epochs=1, budget__max_calls=77)
    again.store, again.models.store, again.run.store = (watched.training.store,) * 3
    again.prepare()
    assert watched.look().budget.max_calls == 77


def test_a_moment_that_is_decided_again_has_no_seconds_to_count() -> None:
    watched = Watched(train__num_epochs=1, evaluation__eval_test=False)
    watched.until("")
    store, keys = watched.training.store, watched.training.run.keys
    store.put_bytes(step_keys(keys, 1).gate, store.get_bytes(step_keys(keys, 1).gate))
    found = ProgressReader(store, keys).read(watched.now)
    assert found is not None
    assert [one.seconds is None for one in found.moments] == [False, True]


def test_verdicts_that_a_step_has_taken_back_are_not_shown() -> None:
    knobs = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "optimizer__use_meta_reflect": True}
    watched = Watched(**knobs, evaluation__eval_test=False)
    watched.until("")
    run = watched.training.run
    step, meta = run.timeline[1:3]
    assert [one.name for one in watched.look().moments] == [step.name, meta.name]
    run.store.delete(run.keys.moment(meta).state)
    run.commit(step, run.state(step))
    assert [one.name for one in watched.look().moments] == [step.name]


def test_what_an_attempt_before_left_of_a_step_is_not_where_it_is() -> None:
    watched = Watched(train__num_epochs=1, evaluation__eval_test=False)
    watched.until("")
    store, run = watched.training.store, watched.training.run
    first, second = run.timeline[1:3]
    keys = run.keys.moment(second)
    # The first step is decided again, and otherwise.
    store.delete(keys.reflected_items)
    store.delete(keys.state)
    run.commit(first, run.state(first))
    begun = watched.look().stage
    assert (begun.name, begun.moment, begun.planned) == ("rollout", "Step 2", None)
    plan = store.get_model(keys.plan("rollout"), RolloutPlan)
    store.put_model(keys.plan("rollout"), plan)
    assert watched.look().stage.planned == 8
    store.put_model(keys.plan("rollout"), plan.model_copy(update={"chunks": plan.chunks * 2}))
    assert watched.look().stage.planned == 16


def test_a_step_that_is_done_again_as_it_was_is_followed() -> None:
    watched = Watched(train__num_epochs=1, evaluation__eval_test=False)
    watched.until("steps/step_0002/update")
    watched.training.clear_steps()
    assert watched.until("steps/step_0001/gate").stage.name == "rollout"
    watched.until("steps/step_0002/rollout")
    assert watched.look().stage.name == "reflection"
    assert watched.until("steps/step_0002/update").stage.name == "evaluation"


def test_of_too_many_parts_the_containers_that_ended_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillopt_airflow.store.running_tables.MOST_NEW_PARTS", 0)
    watched = Watched(train__num_epochs=1, sandbox__items_per_container=6)
    found = watched.until("steps/step_0001/evaluate")
    assert (found.stage.name, found.stage.done, found.stage.planned) == ("evaluation", 0, 24)
    keys = step_keys(watched.training.run.keys, 1)
    for index in (0, 2):
        watched.training.store.put_bytes(keys.timing("evaluate", index), b"")
    assert watched.look().stage.done == 12


def test_a_document_of_a_later_version_is_refused() -> None:
    watched = Watched(train__num_epochs=1)
    watched.training.prepare()
    store, key = watched.training.store, watched.training.run.keys.config
    store.objects[key] = json.dumps(json.loads(store.objects[key]) | {"contract": 99}).encode()
    with pytest.raises(NewerDocument):
        watched.look()
