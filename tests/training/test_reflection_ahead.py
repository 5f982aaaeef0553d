"""The next step's reflection while a candidate is measured: what is asked, by whom it is used, and what it costs."""

import json
from typing import Any

import pytest

from skillopt_airflow.core.buffer import BufferEntry, ReflectedItems, ReflectionAhead, StepBuffer
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, ModelUnavailable
from skillopt_airflow.core.run_history import AskedAhead
from skillopt_airflow.core.types import Status
from skillopt_airflow.training.history import history_of
from skillopt_airflow.training.reflection_ahead import reflect_ahead
from skillopt_airflow.training.timing import load
from tests.training.in_process import Training

pytestmark = pytest.mark.slow

NEVER = {"evaluation__gate_policy": "e_process", "evaluation__gate_alpha": 1e-5}
"""So little evidence suffices in no run of this size: every candidate is rejected."""
ONE_EPOCH = {"train__num_epochs": 1, "train__steps_per_epoch": 3, "train__preflight": False}


def trained(**overrides: Any) -> Training:
    training = Training.of(train__speculative_rollout=True, **{**ONE_EPOCH, **overrides})
    training()
    return training


def buffers(training: Training, stage: str = "reflect") -> list[list[dict[str, Any]]]:
    """The step buffer of each prompt of a stage."""
    prompts = [prompt for asked, prompt in training.models.prompts if asked == stage]
    return [json.loads(prompt.partition("<step_buffer>")[2].partition("</step_buffer>")[0]) for prompt in prompts]


def test_a_rejected_steps_successor_has_its_answers_already() -> None:
    behind, ahead = trained(**NEVER), trained(**NEVER, gradient__reflect_ahead=True)
    assert ahead.actions() == behind.actions() == ["reject"] * 3
    # Nothing is asked twice: the steps find what was asked ahead of them.
    assert len(ahead.models.prompts) == len(set(ahead.models.prompts))
    assert len(buffers(ahead)) == len(buffers(behind))
    counts = history_of(ahead.run).asked_ahead
    assert counts.calls > 0
    assert counts.wasted == 0
    assert history_of(behind.run).asked_ahead == AskedAhead()


def test_the_optimizer_is_told_what_was_tried_and_not_how_it_scored() -> None:
    ahead = trained(**NEVER, gradient__reflect_ahead=True)
    shown = {len(buffer): buffer for buffer in buffers(ahead)}
    assert sorted(shown) == [0, 1, 2]
    assert shown[1][0]["rejected_edits"]
    assert "score_after" not in shown[1][0]
    # A step later the scores are known.
    assert ["score_after" in entry for entry in shown[2]] == [True, False]
    state = ahead.run.state(ahead.run.timeline[3])
    assert all(entry.score_after is not None for entry in state.buffer.entries)


def test_after_an_acceptance_the_step_asks_anew_and_what_was_asked_ahead_is_wasted() -> None:
    always = {"train__seed": 1}
    behind, ahead = trained(**always), trained(**always, gradient__reflect_ahead=True)
    assert ahead.actions() == ["accept_new_best"] * 3
    assert ahead.state == behind.state
    counts = history_of(ahead.run).asked_ahead
    assert counts.calls == counts.wasted == len(ahead.models.prompts) - len(behind.models.prompts) > 0


def test_the_first_step_of_an_epoch_is_shown_an_empty_buffer_ahead_too() -> None:
    rules = {**NEVER, "train__num_epochs": 2, "train__steps_per_epoch": 1, "optimizer__use_slow_update": False}
    rules |= {"optimizer__use_meta_skill": False, "optimizer__use_meta_reflect": False}
    ahead = trained(**rules, gradient__reflect_ahead=True)
    assert [moment.kind for moment in ahead.run.timeline] == ["seed", "step", "step", "final"]
    assert set(map(len, buffers(ahead))) == {0}
    assert history_of(ahead.run).asked_ahead.wasted == 0 < history_of(ahead.run).asked_ahead.calls


def test_an_optimizer_that_does_not_answer_ahead_is_asked_again() -> None:
    failed: list[str] = []

    def reply(stage: str, prompt: str, tool: str) -> Any:
        if stage == "reflect" and '"step": 1' in prompt and not failed:
            failed.append(prompt)
            return ModelUnavailable("the provider is busy")
        return None

    ahead = trained(**NEVER, gradient__reflect_ahead=True, reply=reply)
    assert failed
    assert ahead.actions() == ["reject"] * 3
    assert ("reflect", failed[0]) in ahead.models.prompts[ahead.models.prompts.index(("reflect", failed[0])) + 1 :]


def test_a_batch_of_which_more_has_a_score_at_its_turn_is_asked_about_anew() -> None:
    missed: list[str] = []

    def fail(stage: str, item_id: str) -> Status | None:
        if stage == "speculate" and not missed:
            missed.append(item_id)
            return Status.TIMEOUT
        return None

    ahead = Training.of(train__speculative_rollout=True, **ONE_EPOCH, **NEVER, gradient__reflect_ahead=True)
    ahead.fail = fail
    ahead()
    run = ahead.run
    first, second = run.timeline[1:3]
    stored = run.store.get_model(run.keys.moment(first).reflection_ahead, ReflectionAhead)
    seen = run.store.get_model(run.keys.moment(second).reflected_items, ReflectedItems)
    assert set(seen.item_ids) - set(stored.reflected.item_ids) == set(missed)
    # The step then sees the scores, and what was asked ahead of it was in vain.
    assert "score_after" in [buffer for buffer in buffers(ahead) if len(buffer) == 1][-1][0]
    assert history_of(run).asked_ahead.wasted == stored.calls > 0


def test_done_again_it_asks_nothing_and_counts_what_was_asked_before() -> None:
    ahead = trained(**NEVER, gradient__reflect_ahead=True)
    run, step = ahead.run, ahead.run.timeline[1]
    key = run.keys.moment(step).reflection_ahead
    before, prompts = run.store.get_model(key, ReflectionAhead), len(ahead.models.prompts)
    # What is committed stays as it is.
    reflect_ahead(run, step)
    assert run.store.get_model(key, ReflectionAhead) == before
    for moment in run.timeline[1:4]:
        run.store.delete(run.keys.moment(moment).state)
    reflect_ahead(run, step)
    assert run.store.get_model(key, ReflectionAhead) == before
    assert len(ahead.models.prompts) == prompts
    assert "reflect_ahead" in {row.stage for row in load(run.store, run.keys.moment(step))}


def test_the_optimizer_that_chooses_the_rate_sees_the_scores() -> None:
    ahead = trained(**NEVER, gradient__reflect_ahead=True, optimizer__lr_control_mode="autonomous")
    (last,) = [buffer for buffer in buffers(ahead, "learning_rate") if len(buffer) == 2]
    assert all("score_after" in entry for entry in last)


def test_it_is_for_steps_with_one_candidate() -> None:
    with pytest.raises(ConfigError, match=r"gradient\.reflect_ahead tells the optimizer of the one candidate"):
        TrainConfig.from_layers({"train": {"proposals": 2}, "gradient": {"reflect_ahead": True}})


def test_it_is_for_steps_with_a_batch_ahead() -> None:
    with pytest.raises(ConfigError, match=r"the batch that train\.speculative_rollout rolls out ahead"):
        TrainConfig.from_layers({"train": {"speculative_rollout": False}, "gradient": {"reflect_ahead": True}})


def test_a_buffer_without_its_last_scores() -> None:
    first, last = (BufferEntry(step=step, score_before=0.5, score_after=0.25) for step in (1, 2))
    found = StepBuffer(entries=(first, last)).without_last_scores()
    assert found.entries == (first, BufferEntry(step=2))
    assert StepBuffer().without_last_scores() == StepBuffer()
