"""The report of a training that has ended, and of one that goes on, before each of its writes."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from skillopt_airflow.core.run.history import History, MomentHistory, Publication
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.report.run_page import LEAD, render
from skillopt_airflow.report.summary import outcome
from skillopt_airflow.report.view import ReportView
from skillopt_airflow.training.report.history import history_of, history_so_far
from skillopt_airflow.training.report.reporting import current_task, has_ended, live_view, view_of, write_report
from tests.training.in_process import InterruptedRun, Training, step_keys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained() -> Training:
    training = Training.of(
        train__num_epochs=1, train__steps_per_epoch=2, optimizer__use_slow_update=False, reports=True
    )
    training()
    return training


@pytest.mark.nightly
@pytest.mark.parametrize("removed", ["trajectories/.*", "trajectories/.*split=test.*"])
@pytest.mark.parametrize("own", [True, False])
def test_a_report_keeps_its_figures_where_rollouts_were_removed(trained: Training, removed: str, own: bool) -> None:
    run, objects = trained.run, dict(trained.store.objects)
    before = run.store.get_model(run.keys.history, History)
    assert {"seed", "best", "last"} == set(before.test)
    if not own:
        # All rollouts were those of other runs.
        before = before.model_copy(update={"rollouts": before.rollouts.model_copy(update={"ran": 0})})
        run.store.put_model(run.keys.history, before)
    page = run.store.get_text(run.keys.report)
    kept = {key: body for key, body in trained.store.objects.items() if not re.fullmatch(removed, key)}
    assert len(kept) < len(objects)
    trained.store.objects = kept
    assert write_report(run, withheld="<b>nobody</b> approved it") == before.model_copy(
        update={"withheld": "<b>nobody</b> approved it"}
    )
    published = Publication(
        version="v0001-0123456789ab", sha256="0" * 64, key="s3://b/k", created=True, split=Split.TEST, look=1
    )
    assert "The run published nothing: &lt;b&gt;nobody&lt;/b&gt; approved it." in run.store.get_text(run.keys.report)
    assert write_report(run, published) == before.model_copy(update={"published": published})
    after = run.store.get_text(run.keys.report)
    assert "The run published v0001-0123456789ab, by look 1" in after
    assert without_outcome(after) == without_outcome(page)
    trained.store.objects = objects


@pytest.mark.nightly
def test_the_report_of_a_training_that_was_cleared_and_ends_otherwise_is_of_that_end(trained: Training) -> None:
    run, before = trained.run, trained.run.store.get_model(trained.run.keys.history, History)
    more = before.rollouts.model_copy(update={"ran": before.rollouts.ran + 1})
    run.store.put_model(run.keys.history, before.model_copy(update={"stopped": "once", "rollouts": more}))
    assert write_report(run) == before


@pytest.mark.nightly
def test_an_epochs_end_that_leaves_a_memory_alone_is_no_candidate() -> None:
    training = Training.of(
        train__num_epochs=3,
        train__steps_per_epoch=1,
        optimizer__use_slow_update=False,
        evaluation__eval_test=False,
        reports=True,
    )
    training()
    history = training.run.store.get_model(training.run.keys.history, History)
    assert [moment.kind for moment in history.moments] == ["step", "slow_update"] * 2 + ["step"]
    assert [moment.decision.memory_only for moment in history.moments] == [False, True] * 2 + [False]
    assert [moment.decision.equal for moment in history.moments] == [False, True] * 2 + [False]
    view = view_of(training.run, history)
    assert re.search(r"The gate accepted \d of 3 candidates\.", outcome(view))
    page = render(view)
    assert re.search(r"<dt>Candidates accepted</dt><dd class=\"figure\">\d of 3</dd>", page)
    assert re.search(r"Of 3 candidates, \d were accepted\.", page)
    assert "memory only" in page
    assert history.moments[1].candidate is None


def without_outcome(page: str) -> str:
    before, lead, rest = page.partition(LEAD)
    assert lead
    return before + rest.partition("</p>")[2]


class Watched:
    """A whole training, and what was seen before each of its writes."""

    def __init__(self) -> None:
        self.training = Training.of(
            train__num_epochs=2,
            train__steps_per_epoch=1,
            optimizer__use_meta_reflect=True,
            budget__max_calls=5000,
            reports=True,
        )
        self.tasks: list[str] = []
        self.views: list[ReportView] = []
        self.training.store.before_write = self._look
        self.training()

    def _look(self, key: str) -> None:
        if "/answers/" not in key and self.training.store.exists(self.training.run.keys.config):
            self.tasks.append(current_task(self.training.run))
            # The tables have many parts, and a page is made of all of them.
            view = None if key.endswith(".parquet") else live_view(self.training.run)
            self.views += [] if view is None else [view]


@pytest.fixture(scope="module")
def watched() -> Watched:
    return Watched()


def changes(values: list[Any]) -> Iterator[Any]:
    """The values without those that are equal to the one before."""
    return (value for before, value in pairwise([None, *values]) if value != before)


def test_each_task_is_seen_in_its_order(watched: Watched) -> None:
    step = ["rollout", "update", "evaluate", "gate"]
    slow = ["compare_epochs", "rollout", "slow_update", "evaluate", "gate"]
    meta = ["meta_reflect", "evaluate", "gate"]
    expected = ["Beginning: prepare", "Beginning: score_seed"]
    for epoch in (1, 2):
        expected += [f"Step {epoch}: {task}" for task in step]
        expected += [f"Slow update, epoch {epoch}: {task}" for task in slow]
        expected += [f"Meta reflect, epoch {epoch}: {task}" for task in meta]
    expected += ["End: measure_last", "End: evaluate_last", "End: measure_last", "End: test"]
    assert list(changes(watched.tasks)) == expected


def test_the_rows_and_the_costs_only_grow_up_to_those_of_the_history(watched: Watched) -> None:
    history = history_of(watched.training.run)
    for before, after in pairwise(watched.views):
        assert after.moments[: len(before.moments)] == before.moments
        assert sum(one.calls for one in after.costs) >= sum(one.calls for one in before.costs)
    last = watched.views[-1]
    assert last.moments == history.moments
    assert (last.seed, last.best, last.budget) == (history.seed, history.best, history.budget)
    assert {one.kind for one in last.moments} == {"step", "slow_update", "meta_reflect"}
    assert has_ended(watched.training.run)


def test_the_page_of_a_run_under_way_says_so(watched: Watched) -> None:
    view = next(one for one in watched.views if len(one.moments) == 1)
    page = render(view)
    assert "<strong>1 of 2 steps</strong>" in page
    assert f"<code>{view.task}</code>" in page
    assert 'data-refresh="15"' in page
    assert ">5,000</td>" in page
    assert "The run published nothing" not in page
    ended = watched.training.run.store.get_text(watched.training.run.keys.report)
    assert "data-refresh" not in ended


@pytest.mark.parametrize("written", ["history_row", "runtime_state"])
def test_a_gate_that_dies_leaves_no_row(written: str) -> None:
    training = Training.of(train__num_epochs=1, evaluation__eval_test=False)
    run, keys = training.run, step_keys(training.run.keys, 2)
    last = {"history_row": keys.history_row, "runtime_state": run.keys.runtime_state}[written]

    def die(key: str) -> None:
        if key == last and training.store.exists(keys.gate):
            raise InterruptedRun(key)

    training.store.before_write = die
    with pytest.raises(InterruptedRun):
        training()
    assert current_task(run) == "Step 2: gate"
    assert [one.name for one in history_so_far(run, run.newest_state()).moments] == ["steps/step_0001"]
    training.store.before_write = lambda key: None
    training()
    assert [one.name for one in history_of(run).moments] == ["steps/step_0001", "steps/step_0002"]


def test_what_an_earlier_attempt_left_of_a_step_is_not_what_runs_now() -> None:
    training = Training.of(train__num_epochs=1, evaluation__eval_test=False)
    training()
    run = training.run
    first, second = run.timeline[1:3]
    keys = run.keys.moment(second)
    run.store.delete(keys.state)
    run.commit(first, run.state(first))
    assert current_task(run) == "Step 2: rollout"
    run.store.put_bytes(keys.merged_patch, run.store.get_bytes(keys.merged_patch))
    assert current_task(run) == "Step 2: update"
    assert [one.name for one in history_so_far(run, run.newest_state()).moments] == [first.name]


def test_a_candidate_that_is_taken_without_a_score_leaves_none_and_the_next_one_has_its_own() -> None:
    training = Training.of(train__num_epochs=1, evaluation__use_gate=False, evaluation__eval_test=False)
    training.prepare()
    step = training.run.timeline[1]

    def fail(stage: str, item_id: str) -> Status | None:
        return Status.TIMEOUT if stage == "evaluate" and not training.run.committed(step) else None

    training.fail = fail
    training()
    first, second = history_of(training.run).moments
    assert (first.candidate, first.score_after) == (None, None)
    assert second.candidate is not None
    assert second.score_after == second.candidate.score
    # As it is stored, too.
    assert training.store.get_model(step_keys(training.run.keys, 1).history_row, MomentHistory) == first
