"""Answers that a model judges: whom it is asked about, what becomes of its word, and who pays for it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, ModelUnavailable
from skillopt_airflow.core.run.state import ReflectedItems
from skillopt_airflow.core.values.types import JsonObject, ModelCall, Rollout, Score, Split, Status, Trajectory
from skillopt_airflow.optimizer.judge import check_judge, judge_settings
from skillopt_airflow.store.keys import grades_of
from skillopt_airflow.tasks.protocols import AsksJudge
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.prepare.preparation import estimate_run
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.report.reporting import view_of, write_report
from skillopt_airflow.training.rollouts.batch_job import BatchWork
from skillopt_airflow.training.rollouts.rollout_plan import ids
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from skillopt_airflow.training.run.answer_cache import with_grade
from skillopt_airflow.training.step import steps
from tests.training.in_process import Training, configured
from tests.training.local_store import LocalStore

pytestmark = pytest.mark.slow

ROWS = 40
DECLARED = {
    "task": {
        "id": "id",
        "prompt": "What is {{ id }}? Reply inside <answer></answer> tags.",
        "reference": "answer",
        "score": {"by": "exact"},
        "judge": "Any notation will do.",
    },
    "data": {"uri": "items.json", "split_ratio": "1:1:1"},
}
ONE_STEP = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "train__batch_size": 6}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "spelling"
    folder.mkdir()
    (folder / "benchmark.yaml").write_text(yaml.safe_dump(DECLARED))
    (folder / "initial.md").write_text("# Spell\n")
    # The stand-in's answer to an item that it cannot read is the same for all; some references spell it otherwise.
    rows = [{"id": f"r{n:02d}", "answer": ANSWERS[n % len(ANSWERS)]} for n in range(ROWS)]
    (folder / "items.json").write_text(json.dumps(rows))
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(folder))
    return folder


ANSWERS = ["a slip", "A-SLIP!", "A. Slip", "another"]
"""What every try answers here, twice in another notation, and something else."""


def training(
    reply: Callable[..., Any] | None = None,
    store: LocalStore | None = None,
    name: str = "run",
    *,
    preflight: bool = False,
    **more: Any,
) -> Training:
    knobs = {"model.target": "openai-chat:m", "model.optimizer": "openai-chat:o", "model.judge": "openai-chat:j"}
    knobs |= {key.replace("__", "."): value for key, value in (ONE_STEP | more).items()}
    config = TrainConfig.from_layers(benchmark_config("spelling").model_dump(), nest(knobs))
    made = Training(config, "spelling", name, store=LocalStore() if store is None else store)
    made.slip = lambda sample, item_id: True
    made.done |= {} if preflight else {"preflight": None}
    made.models.reply = reply if reply is not None else lambda stage, prompt, tool: None
    return made


def judged_calls(run: Training) -> list[ModelCall]:
    usage = run.run.usage.read("spelling", run.run.account)
    return [row.call for row in usage if row.call.role == "judge"]


def failing_judge() -> tuple[list[bool], Callable[..., Any]]:
    """Return a switch, and what a judge replies that is out of order while it is on."""
    down = [True]

    def reply(stage: str, prompt: str, tool: str) -> Any:
        return ModelUnavailable("judge: out of order") if stage == "judge" and down[0] else None

    return down, reply


def rolled_out(trained: Training, chunk: JsonObject) -> ChunkWorkload:
    work = ChunkWorkload(trained.run, chunk, "in-process")
    work.record([trained._outcome(work, item) for item in work.items], [])
    return work


def judged_again(trained: Training, chunk: JsonObject) -> ChunkWorkload:
    """Return the chunk after its judge was asked again, and no target."""
    work = ChunkWorkload(trained.run, chunk, "in-process")
    work.judge_again()
    assert not work.items
    return work


def test_rules_first_asks_about_what_the_rules_do_not_find_right() -> None:
    trained = training()
    trained()
    run, state = trained.run, trained.state
    rows = run.stored(Split.VAL, run.skill(state.best.version), 0, run.item_refs(Split.VAL))
    references = {item.id: item.reference["reference"] for item in run.items(Split.VAL)}
    for item_id, rollout in rows.items():
        assert rollout.score.hard == float(references[item_id] != "another")
        judged = rollout.score.grade
        assert (judged is None) is (references[item_id] == "a slip")
        if judged is not None:
            assert re.match(r'expected ".*"; answered "a slip"; the judge says ', rollout.score.feedback)
            assert judged.quote == "a slip"
    calls = judged_calls(trained)
    assert {(call.stage, call.role) for call in calls} == {("judge", "judge")}
    # Every question is paid for once, whichever skill gave the answer.
    judged = [prompt for stage, prompt in trained.models.prompts if stage == "judge"]
    assert len(calls) == len(judged) == len(set(judged)) > 0


@pytest.mark.nightly
@pytest.mark.parametrize(("use", "score"), [("rules", 0.25), ("rules_first", 0.75), ("always", 0.75)])
def test_whose_word_counts_is_a_knob(use: str, score: float) -> None:
    trained = training(evaluation__judge=use)
    trained()
    assert history_of(trained.run).seed.score == pytest.approx(score, abs=0.1)
    calls = len(judged_calls(trained))
    assert (calls > 0) is (use != "rules")
    view = view_of(trained.run, write_report(trained.run))
    page = trained.store.get_text(trained.run.keys.report)
    if use == "rules":
        assert view.judging is None
        assert "Scoring of the answers" not in page
        return
    assert view.judging is not None
    tested = len(trained.run.item_refs(Split.TEST))
    assert view.judging.by_rules + view.judging.by_judge == tested
    assert (view.judging.by_rules == 0) is (use == "always")
    assert len({one.item_id for one in view.judging.sample}) == len(view.judging.sample) > 1
    for one in view.judging.sample:
        assert one.question.startswith(f"What is {one.item_id}?")
        assert one.references[0] in ANSWERS
    assert ("only the answers that the rules" in page) is (use == "rules_first")
    assert [(cost.role, cost.calls) for cost in view.costs if cost.role == "judge"] == [("judge", calls)]


def test_another_run_pays_for_no_grade_again() -> None:
    first = training()
    first()
    # Another target's rollouts are its own, and its answers the same.
    second = training(store=first.store, name="second", model__target="openai-chat:other")
    second()
    assert second.rollouts["seed"] == first.rollouts["seed"]
    assert judged_calls(first)
    assert not judged_calls(second)
    assert history_of(second.run).seed.score == history_of(first.run).seed.score
    # Another judge is another opinion.
    third = training(store=first.store, name="third", model__judge="openai-chat:k")
    third()
    assert judged_calls(third)
    assert third.rollouts["seed"] == first.rollouts["seed"]


def test_a_judge_that_fails_gives_no_score_and_is_asked_again_without_a_rollout() -> None:
    down, reply = failing_judge()
    trained = training(reply)
    [chunk, *others] = trained.prepare()
    work = rolled_out(trained, chunk)
    failed = [one for one in work.ended() if one.status is Status.JUDGE_ERROR]
    references = {item.id: item.reference["reference"] for item in work.assigned}
    assert {one.item_id for one in failed} == {item for item, text in references.items() if text != "a slip"}
    assert {(one.hard, one.error) for one in failed} == {(None, "judge: out of order")}
    assert judged_again(trained, chunk).tally().coverage < 1
    down[0] = False
    assert {one.item_id: one.hard for one in judged_again(trained, chunk).ended()} == {
        item: float(text != "another") for item, text in references.items()
    }
    assert trained.rollouts["seed"] == len(references)
    # A batch job sends nothing for it either.
    down[0] = True
    for other in others:
        rolled_out(trained, other)
    down[0] = False
    batch = BatchWork(trained.run, [chunk, *others], "in-process")
    batch.judge_again()
    assert not batch.job.entries


def test_the_words_of_a_judge_that_fails_are_stored_as_far_as_they_tell_something() -> None:
    def ask() -> Any:
        raise ModelUnavailable("judge: <html>" + "x" * 10_000)

    trajectory = Trajectory(item_id="a", status=Status.OK, answer="a slip")
    failed = with_grade(Rollout(trajectory=trajectory, score=Score(hard=0.0, soft=0.0)), ask)
    assert failed.trajectory.error.startswith("judge: <html>")
    assert len(failed.trajectory.error) == 500


def test_a_batch_whose_judge_was_down_is_reflected_on_when_the_step_is_done_again() -> None:
    down, reply = failing_judge()

    def broken_in_steps(stage: str, item_id: str) -> Status | None:
        """Fails no rollout, and has the judge out of order for those of a step."""
        down[0] = stage == "rollout"
        return None

    trained = training(reply)
    trained.fail = broken_in_steps
    trained()
    run, moment = trained.run, trained.run.timeline[1]
    key, batch = run.keys.moment(moment).reflected_items, ids(run.slices(moment)[0])
    before = run.store.get_model(key, ReflectedItems).item_ids
    assert len(before) < len(batch)
    down[0] = False
    for chunk in steps.rollout(run, moment):
        judged_again(trained, chunk)
    steps.update(run, moment)
    assert run.store.get_model(key, ReflectedItems).item_ids == tuple(sorted(batch))


def test_a_grade_that_does_not_count_is_not_remembered() -> None:
    misquoted = [True]

    def reply(stage: str, prompt: str, tool: str) -> Any:
        grade = {"grade": "correct", "quote": "Picasso", "reason": "So it says."}
        return grade if stage == "judge" and misquoted[0] else None

    trained = training(reply)
    [chunk, *_] = trained.prepare()
    assert any(one.status is Status.JUDGE_ERROR for one in rolled_out(trained, chunk).ended())
    assert not trained.store.list_keys(grades_of(trained.run.ref.storage.prefix, "spelling"))
    misquoted[0] = False
    judged_again(trained, chunk)
    assert trained.store.list_keys(grades_of(trained.run.ref.storage.prefix, "spelling"))


def test_the_judge_is_tried_before_the_first_batch_and_what_it_costs_is_estimated() -> None:
    trained = training(budget__max_calls=10_000, preflight=True)
    trained.prepare()
    sizes = {split: len(trained.run.items(split)) for split in (Split.TRAIN, Split.VAL, Split.TEST)}
    found = estimate_run(trained.run, sizes).totals.calls
    assert found["judge"] == found["target"]
    trained()
    calls = judged_calls(trained)
    assert calls[0].stage == "preflight"
    assert len(calls) <= found["judge"]
    rules = training(evaluation__judge="rules", model__judge=None)
    rules.prepare()
    assert "judge" not in estimate_run(rules.run, sizes).totals.calls


@pytest.mark.nightly
def test_a_budget_of_calls_has_those_of_the_judge_in_it() -> None:
    free, judged = (training(evaluation__judge=use, train__steps_per_epoch=4) for use in ("rules", "always"))
    free()
    limit = len(list(free.run.usage.rows("spelling", free.run.account))) + 5
    tight = training(evaluation__judge="always", train__steps_per_epoch=4, budget__max_calls=limit)
    tight()
    judged()
    assert tight.state.stopped
    assert not judged.state.stopped


def test_a_benchmark_that_asks_no_judge_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(benchmarks.LIST_VARIABLE)
    config, searchqa = configured("searchqa", {}), benchmarks.load("searchqa")
    assert not isinstance(searchqa, AsksJudge)
    assert judge_settings(config) == {}
    with pytest.raises(ConfigError, match=r"^evaluation\.judge = always"):
        check_judge(config.evaluation.model_copy(update={"judge": "always"}), searchqa)
