"""Whole trainings without Airflow: in-process models, a store in memory; each mechanism on and off."""

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.standin.economy import RULES
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, DataError, ModelOutputError, ObjectMissing
from skillopt_airflow.core.gate.decision import GateDecision
from skillopt_airflow.core.run.state import ReflectedItems
from skillopt_airflow.core.values import skill as skill_module
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.provenance import LinesOfSkill
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import DATA_SPLITS, Patch, Split, Status
from skillopt_airflow.store.data.item_tables import load_items
from skillopt_airflow.store.run_states import equal_states
from skillopt_airflow.training.prepare.preparation import check_same_inputs, check_unchanged
from skillopt_airflow.training.report.history import history_of
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.step import seed_and_final, steps
from skillopt_airflow.training.step.candidate import gate as decide_again
from tests.training.in_process import InterruptedRun, Training, step_keys
from tests.training.local_store import LocalStore

pytestmark = pytest.mark.slow

STEPS = ("steps/step_0001", "steps/step_0002", "steps/step_0003", "steps/step_0004")


def sections(training: Training, stage: str, tag: str) -> list[str]:
    """The sections of all prompts of a stage."""
    prompts = [prompt for name, prompt in training.models.prompts if name == stage]
    return [prompt.split(f"<{tag}>\n")[1].split(f"\n</{tag}>")[0] for prompt in prompts if f"<{tag}>" in prompt]


def stages(training: Training) -> Counter[str]:
    return Counter(stage for stage, _ in training.models.prompts)


def decisions(training: Training) -> dict[str, GateDecision]:
    run = training.run
    return {
        moment.name: run.store.get_model(run.keys.moment(moment).gate, GateDecision)
        for moment in run.timeline[1:-1]
        if run.store.exists(run.keys.moment(moment).gate)
    }


def candidate(training: Training, moment: str) -> str:
    return training.store.objects[f"runs/{training.benchmark}/{training.name}/{moment}/candidate_skill.md"].decode()


@pytest.fixture(scope="module")
def plain() -> Training:
    """A training as the benchmark has it, for tests that only look at it."""
    training = Training.of()
    training()
    return training


def test_a_training_beats_its_seed(plain: Training) -> None:
    history = history_of(plain.run)
    assert history.best.score > history.seed.score
    assert plain.state.best.version > 0
    assert set(plain.actions()) >= {"accept_new_best", "reject"}
    assert plain.store.get_text(plain.run.keys.best_skill) == plain.skill()


@pytest.mark.nightly
@pytest.mark.parametrize("benchmark", ["livemathematicianbench", "mathverse", "babyvision", "sealqa"])
def test_the_trainer_is_not_shaped_by_one_benchmark(benchmark: str) -> None:
    training = Training.of(benchmark, evaluation__val_limit=20)
    training()
    assert history_of(training.run).best.score > history_of(training.run).seed.score


@pytest.mark.nightly
def test_accumulation_rolls_out_several_slices_before_it_merges() -> None:
    small = {"train__batch_size": 4, "preflight": False}
    one, two = Training.of(**small), Training.of(**small, train__accumulation=2)
    one(), two()
    assert two.rollouts["rollout"] == 2 * one.rollouts["rollout"]
    assert stages(two)["reflect"] > stages(one)["reflect"]
    patch = two.store.get_model(step_keys(two.run.keys, 1).merged_patch, Patch)
    assert {name for edit in patch.edits for name in edit.minibatches}


def test_analysts_see_several_samples_of_an_item_side_by_side() -> None:
    samples, small = 3, {"train__num_epochs": 1, "preflight": False, "gradient__use_deep_reflect": True}
    once, thrice = Training.of(**small), Training.of(**small, train__samples=samples)
    for training in (once, thrice):
        # The last try of every item goes wrong, and one has no score: with several, all items are won or lost by it.
        training.slip = lambda sample, item_id: sample == samples - 1
    once(), thrice()
    assert thrice.rollouts["rollout"] == samples * once.rollouts["rollout"]
    assert ", sample " not in "".join(sections(once, "reflect", "trajectories"))
    won = 0
    for shown in sections(thrice, "reflect", "trajectories"):
        found = re.findall(r"^## Item (\d+), sample (\d) of 3: hard ([\d.]+)", shown, re.MULTILINE)
        assert [(item, place) for item, place, _ in found] == [
            (str(item), place) for item in range(1, len(found) // samples + 1) for place in "123"
        ]
        # Each item is compared with itself, from its lowest score on.
        hards = [
            [float(hard) for *_, hard in found[start : start + samples]] for start in range(0, len(found), samples)
        ]
        assert all(of_item == sorted(of_item) and of_item[0] == 0 for of_item in hards)
        won += sum(of_item[-1] == 1 for of_item in hards)
        # The target is asked about the try that went worst.
        assert not any("follow-up answer" in part for part in shown.split("## Item ") if ", sample 1 of 3" not in part)
    assert won
    assert set(sections(thrice, "reflect", "outcome")) == {"failure"}
    assert any("follow-up answer" in shown for shown in sections(thrice, "reflect", "trajectories"))
    seen = thrice.store.get_model(step_keys(thrice.run.keys, 1).reflected_items, ReflectedItems)
    assert (seen.failed, set(seen.samples.values())) == (len(seen.item_ids), {(0, 1, 2)})
    assert not once.store.get_model(step_keys(once.run.keys, 1).reflected_items, ReflectedItems).samples


def test_a_failed_try_leaves_the_others_of_its_item() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, train__samples=2)
    failing: dict[str, int] = {}

    def fail(stage: str, item_id: str) -> Status | None:
        failing[item_id] = failing.get(item_id, 0) + (stage == "rollout")
        return Status.TIMEOUT if stage == "rollout" and failing[item_id] == 1 else None

    training.fail = fail
    training()
    shown = "\n".join(sections(training, "reflect", "trajectories"))
    assert len(re.findall(r"^## Item \d+: ", shown, re.MULTILINE)) == 8


@pytest.mark.nightly
def test_analysts_see_what_the_benchmark_says_of_itself_and_a_run_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "searchqa"
    shutil.copytree(benchmarks.folder("searchqa"), copied)
    shutil.copy(benchmarks.seed_skill("searchqa"), copied)
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(copied))
    told = Training.of(train__num_epochs=1)
    told()
    text = (copied / "guidance" / "reflect.md").read_text(encoding="utf-8").strip()
    assert sections(told, "reflect", "benchmark_guidance") == [text] * stages(told)["reflect"]
    assert sections(told, "merge", "benchmark_guidance") == []
    shutil.rmtree(copied / "guidance")
    items = {split: told.run.items(split) for split in DATA_SPLITS}
    with pytest.raises(ConfigError, match=r"changed since: .*the benchmark's guidance"):
        check_same_inputs(told.run, items, told.run.skill(0), told.run.record.image)
    untold = Training.of(train__num_epochs=1)
    untold()
    assert stages(untold)["reflect"] > 0
    assert sections(untold, "reflect", "benchmark_guidance") == []


@pytest.mark.nightly
def test_without_a_learning_rate_every_edit_stays() -> None:
    training = Training.of(optimizer__lr_control_mode="none", gradient__minibatch_size=1)
    training()
    assert stages(training)["rank"] == 0
    for step in (1, 2):
        keys = step_keys(training.run.keys, step)
        merged, ranked = (training.store.get_model(key, Patch) for key in (keys.merged_patch, keys.ranked_edits))
        assert ranked.edits == merged.edits


@pytest.mark.nightly
def test_an_autonomous_optimizer_chooses_the_learning_rate_and_says_why(plain: Training) -> None:
    training = Training.of(optimizer__lr_control_mode="autonomous", gradient__minibatch_size=1)
    training()
    assert stages(training)["learning_rate"] >= 1
    chosen = json.loads(training.store.get_bytes(step_keys(training.run.keys, 1).learning_rate))
    assert isinstance(chosen, dict)
    assert chosen["reason"]
    ranked = training.store.get_model(step_keys(training.run.keys, 1).ranked_edits, Patch)
    assert len(ranked.edits) <= chosen["rate"]
    scores = [json.loads(text) for text in sections(training, "learning_rate", "scores")]
    assert all(score["rollouts"] == 8 and 0 < score["failed"] <= 8 and score["hard"] < 1 for score in scores)
    buffers = [json.loads(text) for text in sections(training, "learning_rate", "step_buffer")]
    assert {len(buffer) for buffer in buffers} == {0, 1}
    assert stages(plain)["learning_rate"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["rewrite_from_suggestions", "full_rewrite_minibatch"])
def test_the_rewrite_modes_write_the_body_anew_and_keep_where_its_lines_come_from(mode: str) -> None:
    training = Training.of(optimizer__skill_update_mode=mode)
    training()
    report = training.store.get_model(step_keys(training.run.keys, 1).edit_apply_report, EditApplyReport)
    assert [row.edit.op for row in report.rows if row.status == "applied"] == ["rewrite"]
    version = training.state.best.version
    lines = training.store.get_model(training.run.keys.line_origins(version), LinesOfSkill).lines
    assert {line.moment for line in lines} >= {"steps/step_0000"}
    assert any(line.op == "rewrite" and line.minibatches for line in lines)
    seen = [json.loads(text) for text in sections(training, "rewrite", "step_buffer")]
    assert bool(seen) == (mode == "rewrite_from_suggestions")
    assert not seen or max(map(len, seen)) == 1


@pytest.mark.nightly
def test_density_chooses_the_best_skill_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each rule after the first one is so long that the skill scores higher but has a lower density.
    def wordy(stage: str, prompt: str, tool: str) -> Any:
        if stage != "reflect":
            return None
        rule = next(rule for rule in RULES if rule not in prompt)
        content = f"- {rule}" if rule == RULES[0] else f"- {rule} {'That matters. ' * 200}"
        return {"failure_patterns": [], "edits": [{"op": "append", "anchor": "", "content": content, "rationale": "r"}]}

    rules = {"reply": wordy, "evaluation__early_reject": False}
    monkeypatch.setattr(skill_module, "DENSITY_WEIGHT", 50.0)
    off, on = Training.of(**rules), Training.of(**rules, evaluation__use_semantic_density=True, reports=True)
    off(), on()
    assert [one.action.accepted for one in decisions(on).values()] == [
        one.action.accepted for one in decisions(off).values()
    ]
    assert off.state.best.version == off.state.current.version > on.state.best.version
    for one in decisions(on).values():
        if one.action.accepted:
            assert one.weighed
            assert (one.action == "accept_new_best") == (one.weighed[0] > one.weighed[1])
    assert all(one.weighed is None for one in decisions(off).values())
    assert on.store.get_text(on.run.keys.best_skill) == on.skill() != off.skill()
    assert "Score with density, candidate and best" in on.store.get_text(on.run.keys.report)


def test_each_epochs_last_skill_is_tested_and_selects_nothing(plain: Training) -> None:
    tested = Training.of(evaluation__eval_test="each_epoch", reports=True)
    tested()
    run, history, usual = tested.run, history_of(tested.run), history_of(plain.run)
    assert list(history.test) == ["seed", "epoch 1", "epoch 2", "best", "last"]
    ends = {moment.epoch: run.state(moment).current.version for moment in run.timeline[1:-1]}
    assert {epoch: history.test[f"epoch {epoch}"].version for epoch in ends} == ends
    assert history.test["epoch 2"] == history.test["last"]
    # Equal texts are rolled out once.
    texts = {run.skill(score.version).sha256 for score in history.test.values()}
    assert tested.rollouts["test"] == len(texts) * len(run.item_refs(Split.TEST))
    assert tested.rollouts["test"] > plain.rollouts["test"]
    assert "<tr><td>epoch 1</td><td>test</td>" in tested.store.get_text(run.keys.report)
    # All else is as without.
    assert equal_states(tested.state, plain.state)
    assert {name: history.test[name] for name in usual.test} == usual.test


def test_a_skill_that_grows_long_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    long = "# Answering\n\n" + "".join(f"- Rule {number}: read each page.\n" for number in range(400))
    training = Training.of(
        train__init_skill=long, train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False
    )
    with caplog.at_level("WARNING"):
        training()
    assert training.state.best.version == 1
    assert [record.args[0] for record in caplog.records if "tokens" in record.getMessage()] == [1]


@pytest.mark.nightly
def test_a_benchmark_with_types_of_task_is_told_by_them() -> None:
    short = {"train__num_epochs": 1, "evaluation__val_limit": 20}
    off = Training.of("livemathematicianbench", **short, reports=True)
    # All items of the sample are of one month.
    on = Training.of("livemathematicianbench", **short, data__task_type="month", reports=True)
    off(), on()
    assert [verdict.action for verdict in decisions(on).values()] == [one.action for one in decisions(off).values()]
    assert not any(verdict.by_type for verdict in decisions(off).values())
    for verdict in decisions(on).values():
        assert (verdict.density is None) == (not verdict.by_type)
        if verdict.by_type:
            total = sum(one.items * one.score for one in verdict.by_type)
            assert total == pytest.approx(on.run.config.evaluation.val_limit * verdict.against_current.score)
    assert any(verdict.by_type for verdict in decisions(on).values())
    [tested] = history_of(on.run).test["best"].by_type
    assert (tested.task_type, tested.items) == ("sample", len(on.run.items(Split.TEST)))
    pages = [training.store.get_text(training.run.keys.report) for training in (on, off)]
    assert [page.count("By type of task") for page in pages] == [1, 0]
    assert '<td class="data">sample</td>' in pages[0]


def test_a_slow_update_writes_its_region_only_and_passes_the_gate() -> None:
    off = Training.of(optimizer__use_slow_update=False, optimizer__use_meta_skill=False)
    on = Training.of(evaluation__early_reject=False)
    off(), on()
    assert off.rollouts["compare_epochs"] == 0
    assert off.run.skill(0).region("SLOW_UPDATE") is None
    assert on.run.skill(0).region("SLOW_UPDATE") == ""
    text = SkillDocument(candidate(on, "slow_update/epoch_02"))
    before = on.run.skill(on.run.state(on.run.timeline[4]).current.version)
    assert text.region("SLOW_UPDATE")
    assert text.with_region("SLOW_UPDATE", "") == before.with_region("SLOW_UPDATE", "")
    verdict = decisions(on)["slow_update/epoch_02"]
    assert verdict.coverage == 1.0


def test_slow_update_and_meta_skill_see_both_skills_and_both_trajectories() -> None:
    training = Training.of(train__num_epochs=3, evaluation__use_gate=False)
    training()
    run = training.run
    ends = [run.state(moment) for moment in run.timeline if moment.kind == "step" and moment.step in (2, 4)]
    before, now = (run.skill(state.current.version).text for state in ends)
    assert before != now
    # A memory is written after the first epoch, too.
    for stage, place in (("slow_update", 0), ("meta_skill", 1)):
        assert sections(training, stage, "previous_skill")[place].strip() == before.strip()
        assert sections(training, stage, "skill")[place].strip() == now.strip()
        shown = sections(training, stage, "comparison")[0]
        assert shown.count("\n## Item ") == shown.count("### under the earlier skill") > 0
        assert shown.count("### under the later skill") == shown.count("\n## Item ")


@pytest.mark.nightly
def test_the_meta_skill_reaches_later_calls_and_never_the_skill() -> None:
    training = Training.of(train__num_epochs=3)
    training()
    first, second = (training.store.get_text(training.run.keys.meta_skill(epoch)).strip() for epoch in (1, 2))
    shown = [text.strip() for text in sections(training, "reflect", "meta_skill")]
    assert {*shown} == {first, second}
    assert second not in training.skill()
    assert training.state.meta_skill.strip() == second
    without = Training.of(train__num_epochs=3, optimizer__use_meta_skill=False)
    without()
    assert not sections(without, "reflect", "meta_skill")


def test_meta_reflection_proposes_from_the_epoch_behind_the_same_gate(plain: Training) -> None:
    training = Training.of(optimizer__use_meta_reflect=True)
    training()
    assert stages(training)["meta_reflect"] == 2
    assert {"meta_reflect/epoch_01", "meta_reflect/epoch_02"} <= decisions(training).keys()
    assert [step["step"] for step in json.loads(sections(training, "meta_reflect", "epoch_steps")[1])] == [3, 4]
    assert "meta_reflect/epoch_01" not in decisions(plain)


def test_meta_reflection_proposes_as_many_edits_where_steps_write_the_body_anew() -> None:
    short = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "optimizer__use_meta_reflect": True}
    training = Training.of(**short, optimizer__skill_update_mode="full_rewrite_minibatch")
    training()
    assert sections(training, "meta_reflect", "budget") == [str(training.config.optimizer.learning_rate)]


def test_skill_aware_reflection_puts_lapses_into_the_appendix() -> None:
    def reply(stage: str, prompt: str, tool: str) -> Any:
        outcome = prompt.split("<outcome>\n")[1].split("\n")[0] if "<outcome>" in prompt else ""
        notes = [f"Mind a {outcome}."] if stage == "reflect_skill_aware" else None
        return None if notes is None else {"failure_patterns": [], "edits": [], "notes": notes}

    training = Training.of(
        reply=reply,
        train__num_epochs=1,
        train__steps_per_epoch=1,
        optimizer__use_skill_aware_reflection=True,
        optimizer__skill_aware_appendix_source="both",
    )
    training()
    after = training.run.skill(training.run.state(training.run.timeline[1]).current.version)
    assert set(str(after.region("APPENDIX")).split("\n")) == {"- Mind a failure.", "- Mind a success."}
    assert stages(training)["consolidate"] == 0


@pytest.mark.nightly
def test_a_full_appendix_is_consolidated() -> None:
    def reply(stage: str, prompt: str, tool: str) -> Any:
        if stage == "reflect_skill_aware":
            notes = [f"Note {len(prompt)} of {word}." for word in ("one", "two", "three")]
            return {"failure_patterns": [], "edits": [], "notes": notes}
        if stage == "consolidate":
            count = len(json.loads(prompt.split("<notes>\n")[1].split("\n</notes>")[0]))
            return {"notes": [{"text": "All in one.", "sources": list(range(count))}]}
        return None

    training = Training.of(
        reply=reply,
        optimizer__use_skill_aware_reflection=True,
        optimizer__skill_aware_consolidate_threshold=2,
        train__num_epochs=1,
    )
    training()
    after = training.run.skill(training.run.state(training.run.timeline[1]).current.version).text
    assert SkillDocument(after).region("APPENDIX") == "- All in one."


@pytest.mark.nightly
@pytest.mark.parametrize("accepts", [True, False])
def test_notes_enter_the_skill_without_the_gate_and_are_measured_with_the_next_candidate(accepts: bool) -> None:
    def reply(stage: str, prompt: str, tool: str) -> Any:
        if stage != "reflect_skill_aware":
            return None
        added = "\n".join(f"- {rule}" for rule in RULES[:3]) if accepts else "- Nothing that helps."
        edit = {"op": "append", "content": added, "rationale": "r"}
        return {"failure_patterns": [], "edits": [edit], "notes": [f"Mind {len(prompt)}."]}

    training = Training.of(
        reply=reply,
        optimizer__use_skill_aware_reflection=True,
        optimizer__use_slow_update=False,
        train__num_epochs=1,
    )
    final = training()
    run = training.run
    first, second = run.timeline[1], run.timeline[2]
    before, after = run.state_before(first), run.state(first)
    assert decisions(training)[first.name].action.accepted is accepts
    noted, measured = run.skill(after.current.version), run.document(run.keys.moment(first).candidate_skill)
    assert after.current.has_new_notes
    assert "Mind" not in measured.text
    assert "Mind" in str(noted.region("APPENDIX"))
    # Only its notes are new, whatever the gate said, and the scores are those of the text without them.
    assert noted.with_region("APPENDIX", "") == (measured if accepts else run.skill(before.current.version))
    assert after.current.evaluation == (after.best if accepts else before.current).evaluation
    # The next step starts from it.
    assert run.state_before(second).current.sha256 == noted.sha256
    batch = run.stored(Split.TRAIN, noted, 0, [item for part in run.slices(second) for item in part])
    assert all(rollout.score is not None for rollout in batch.values())
    lines = run.store.get_model(run.keys.line_origins(after.current.version), LinesOfSkill).lines
    wrote = [line.edit for line, text in zip(lines, noted.text.split("\n"), strict=True) if "Mind" in text]
    report = run.store.get_model(run.keys.moment(first).edit_apply_report, EditApplyReport)
    notes = run.store.get_model(run.keys.moment(first).notes_apply_report, EditApplyReport).rows
    assert wrote == [row.index for row in notes] == [len(report.rows) + n for n in range(len(wrote))]
    # In the end the last skill is measured with its notes, and competes.
    assert training.rollouts["final"] > 0
    assert not final.current.has_new_notes
    assert final.best.evaluation.size == len(run.item_refs(Split.VAL))


EVALUATED_WHOLE = {"evaluation__val_limit": 40, "model__concurrency": 8}


@pytest.fixture(scope="module")
def full() -> Training:
    full = Training.of(**EVALUATED_WHOLE, evaluation__early_reject=False)
    full()
    return full


@pytest.mark.parametrize(("containers", "seed"), [pytest.param(1, 1, marks=pytest.mark.nightly), (4, 2)])
def test_early_rejection_decides_alike_for_fewer_rollouts(full: Training, containers: int, seed: int) -> None:
    early = Training.of(**EVALUATED_WHOLE)
    early.containers, early.seed = containers, seed
    early()
    assert early.actions() == full.actions()
    assert early.skill() == full.skill()
    assert early.rollouts["evaluate"] < full.rollouts["evaluate"]
    bounds = [verdict.bound for verdict in decisions(early).values() if verdict.bound is not None]
    assert bounds
    for name, verdict in decisions(early).items():
        if verdict.bound is not None:
            assert decisions(full)[name].against_current.score <= verdict.bound


def test_stored_rollouts_are_reused_by_another_run(plain: Training) -> None:
    again = Training(plain.config, name="again", store=LeftBehind.of(plain).store)
    assert again() == plain.state
    assert sum(again.rollouts.values()) == 0
    counts = history_of(again.run).rollouts
    assert (counts.ran, counts.reused) == (0, counts.planned - counts.cancelled)


@pytest.mark.nightly
def test_what_was_rolled_out_ahead_of_a_step_that_did_not_come_is_wasted() -> None:
    ahead = Training.of(
        reply=lambda stage, prompt, tool: ModelOutputError("no patch") if stage == "reflect" else None,
        train__speculative_rollout=True,
        train__num_epochs=1,
        train__steps_per_epoch=4,
    )
    assert ahead().stopped.startswith("no reflection")
    history = history_of(ahead.run)
    assert len(history.steps) == 2
    # The batch of the step that would have been next.
    assert history.rollouts.wasted == 8 < history.rollouts.speculated


def test_errors_of_the_infrastructure_are_no_score() -> None:
    val_size = 0

    def fail(stage: str, item_id: str) -> Status | None:
        nonlocal val_size
        val_size += stage == "evaluate"
        return Status.TIMEOUT if stage == "evaluate" and val_size > 1 else None

    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, optimizer__use_slow_update=False)
    training.fail, training.why = fail, "no answer in 60 s"
    final = training()
    verdict = decisions(training)[STEPS[0]]
    assert verdict.action == "indecisive"
    assert "23 of 24 items: timeout: no answer in 60 s (for example item " in verdict.reason
    assert final.current.version == final.best.version == 0
    assert not final.buffer.entries[0].rejected_edits


def test_a_run_that_would_pass_its_budget_stops_after_the_step_and_keeps_what_it_has() -> None:
    training = Training.of(budget__max_calls=150, evaluation__eval_test=False, train__num_epochs=4)
    final = training()
    assert final.stopped.startswith("budget.max_calls")
    assert 0 < final.step < 8
    history = history_of(training.run)
    assert history.stopped == final.stopped
    assert len(history.steps) == final.step
    assert training.store.exists(training.run.keys.best_skill)


MALFORMED: dict[str, Any] = {
    "not JSON": "I think that we should",
    "ten megabytes": {
        "edits": [{"op": "append", "content": "x" * 10_000_000}],
        "failure_patterns": [],
        "guidance": "x" * 10_000_000,
        "memory": "x" * 10_000_000,
    },
    "protected text": {
        "edits": [
            {"op": "append", "content": "<!-- SLOW_UPDATE_END -->"},
            {"op": "delete", "anchor": "<!-- SLOW_UPDATE_START -->"},
        ],
        "failure_patterns": [],
        "guidance": "<!-- SLOW_UPDATE_END -->",
        "memory": "",
    },
    "a refusal": ModelOutputError("the model refused"),
}
"""Of each fault at least one; `tests/optimizer/test_malformed_answers.py` has more for each stage."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.nightly if "megabytes" in kind else ()) for kind in MALFORMED]
)
def test_malformed_answers_never_fail_a_run_and_are_counted(kind: str) -> None:
    training = Training.of(
        reply=lambda stage, prompt, tool: MALFORMED[kind],
        preflight=False,
        train__num_epochs=3,
        train__steps_per_epoch=1,
        optimizer__use_meta_reflect=True,
        gradient__use_deep_reflect=True,
    )
    final = training()
    assert final.best.version == 0
    assert training.run.skill(0).text == training.skill()
    history = history_of(training.run)
    if kind != "protected text":
        assert sum(len(moment.fallbacks) for moment in history.moments) > 0
    if kind == "a refusal":
        # Without one usable reflection in two steps, a third would be as useless.
        assert "the model refused" in final.stopped
        assert len(history.steps) == 2
    for moment in history.moments:
        report = training.store.get_model(
            f"{training.run.keys.folder}{moment.name}/edit_apply_report.json", EditApplyReport
        )
        assert report.count("applied") == 0


TINY = {
    "data__limit": 6,
    "train__batch_size": 6,
    "train__steps_per_epoch": 1,
    "optimizer__use_meta_reflect": True,
    "evaluation__val_limit": None,
    "evaluation__test_limit": None,
    # Six items are too few for a test.
    "publishing__gate_policy": "strict",
}


@dataclass
class LeftBehind:
    """What the process of a run would leave if it died now: its objects, and what a scheduler knows of its tasks."""

    objects: dict[str, bytes]
    done: dict[str, Any]

    @classmethod
    def of(cls, training: Training) -> "LeftBehind":
        return cls(dict(training.store.objects), dict(training.done))

    @property
    def store(self) -> LocalStore:
        store = LocalStore()
        store.objects |= self.objects
        return store

    def resumed(self, config: TrainConfig) -> Training:
        """A training that goes on from there, and writes its page again where that was begun."""
        begun = any(key.endswith("report.html") for key in self.objects)
        return Training(config, store=self.store, done=self.done, reports=begun)


@pytest.mark.nightly
def test_a_run_whose_process_dies_at_any_write_ends_like_one_that_does_not() -> None:
    whole = Training.of(**TINY, reports=True)
    left: list[LeftBehind] = []
    whole.store.before_write = lambda key: left.append(LeftBehind.of(whole))
    expected = whole()
    deaths = [*left[::11], left[-1]]
    assert len(deaths) > 5
    for death in deaths:
        assert death.resumed(whole.config)() == expected


def dies_before_merged(key: str) -> None:
    """The patches of a step are there, and what they were merged into is not."""
    if key.endswith("merged_patch.json"):
        raise InterruptedRun(key)


def test_no_answer_is_paid_twice_when_a_task_is_done_again() -> None:
    first = Training.of(**TINY)
    first.store.before_write = dies_before_merged
    with pytest.raises(InterruptedRun):
        first()
    again = Training(first.config, store=first.store, done=first.done)
    with pytest.raises(InterruptedRun):
        again()
    assert first.models.prompts
    assert not again.models.prompts


def test_history_adds_up(plain: Training) -> None:
    history = history_of(plain.run)
    assert history.calls("optimizer") == len(plain.models.prompts)
    assert history.rollouts.ran == sum(plain.rollouts.values())
    assert history.rollouts.planned >= history.rollouts.ran
    assert [moment.name for moment in history.moments] == [moment.name for moment in plain.run.timeline[1:-1]]


def test_a_gate_that_is_decided_again_does_not_set_the_run_back(plain: Training) -> None:
    training = LeftBehind.of(plain).resumed(plain.config)
    run, kept = training.run, training.run.keys.best_skill
    before = {key: training.store.objects[key] for key in (kept, run.keys.runtime_state)}
    decide_again(run, run.timeline[1])
    assert {key: training.store.objects[key] for key in before} == before


@pytest.mark.nightly
@pytest.mark.parametrize("under_way", [False, True])
def test_a_step_that_ends_otherwise_leaves_behind_what_followed_from_it(under_way: bool) -> None:
    training = Training.of(train__num_epochs=1)
    training()
    run = training.run
    first, *later = run.timeline[1:]
    assert run.state(first).best.version == 1
    if under_way:
        for moment in later:
            training.store.delete(run.keys.moment(moment).state)
    # As if its task were cleared, and the optimizer proposed something else; nothing has a score yet.
    training.store.put_text(run.keys.moment(first).candidate_skill, run.skill(0).text + "\n- Another rule.\n")
    state = decide_again(run, first)
    assert not any(training.store.exists(run.keys.moment(moment).state) for moment in later)
    assert not any(training.store.exists(run.keys.moment(moment).reflected_items) for moment in later)
    assert run.newest_state() == state
    assert training.store.get_text(run.keys.best_skill) == run.skill(0).text
    with pytest.raises(ObjectMissing):
        run.state(run.timeline[-1])


@pytest.mark.nightly
def test_steps_that_were_compared_with_a_seed_that_lacked_items_do_not_outlive_its_next_evaluation() -> None:
    training = Training.of(train__num_epochs=1)
    training.prepare()
    lost = training.run.items(Split.VAL)[0].id
    training.fail = lambda stage, item: Status.TIMEOUT if (stage, item) == ("seed", lost) else None
    training()
    run = training.run
    assert lost not in run.state(run.timeline[0]).current.evaluation.scores
    training.fail = lambda stage, item: None
    training.run_containers(seed_and_final.seed_plan(run))
    state = seed_and_final.start(run)
    assert lost in state.current.evaluation.scores
    assert equal_states(run.newest_state(), state)
    assert not any(training.store.exists(run.keys.moment(moment).state) for moment in run.timeline[1:])


@pytest.mark.nightly
def test_items_that_are_rolled_out_after_the_reflection_are_reflected_on_when_it_is_done_again() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1)
    training.fail = lambda stage, item: Status.TIMEOUT if stage == "rollout" and item.endswith(("1", "3")) else None
    training()
    run, moment = training.run, training.run.timeline[1]
    key = run.keys.moment(moment).reflected_items
    assert len(training.store.get_model(key, ReflectedItems).item_ids) < 8
    training.fail = lambda stage, item: None
    training.run_containers(steps.rollout(run, moment))
    steps.update(run, moment)
    assert len(training.store.get_model(key, ReflectedItems).item_ids) == 8


@pytest.mark.nightly
def test_a_rollout_that_turns_up_late_changes_no_minibatch() -> None:
    late = {"on": True}

    def fail(stage: str, item_id: str) -> Status | None:
        return Status.TIMEOUT if late["on"] and stage == "rollout" and item_id.endswith("1") else None

    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1)
    training.fail, training.store.before_write = fail, dies_before_merged
    with pytest.raises(InterruptedRun):
        training()
    late["on"], training.store.before_write = False, lambda key: None
    other = Training(training.config, name="other", store=training.store)
    other()
    resumed = Training(training.config, store=training.store, done=training.done)
    assert resumed().step == 1


def test_a_run_that_ends_for_want_of_scores_says_why() -> None:
    training = Training.of(preflight=False)
    training.fail = lambda stage, item_id: Status.MODEL_ERROR
    training.why = "Invalid response: usage.prompt_tokens: Field required"
    with pytest.raises(DataError, match=rf"24 of 24 items: model_error: {training.why} \(for example item "):
        training()


@pytest.mark.nightly
def test_a_second_attempt_that_is_stopped_does_not_end_with_the_first_ones_states() -> None:
    training = Training.of(evaluation__eval_test=False)
    training()
    again = Training(training.config, store=training.store, done={"prepare": training.done["prepare"]})
    again.run = TrainingRun(again.run.ref.model_copy(update={"overrides": {"budget.max_calls": 1}}), again.models)
    final = again()
    assert final.stopped
    assert final.step == 1


def test_a_run_goes_on_with_its_own_inputs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False)
    training.prepare()
    run = training.run
    items, seed, image = {split: run.items(split) for split in DATA_SPLITS}, run.skill(0), run.record.image
    other = items | {Split.VAL: load_items(run.store, run.keys.items(Split.VAL))[1:]}
    # Before its first state it may still change.
    check_same_inputs(run, other, SkillDocument("# Another\n"), "sha256:other")
    training()
    items[Split.VAL] = load_items(run.store, run.keys.items(Split.VAL))
    items[Split.TEST] = load_items(run.store, run.keys.items(Split.TEST))
    check_same_inputs(run, items, seed, image)
    # Built anew it has the same program.
    check_same_inputs(run, items, seed, "sha256:other")
    monkeypatch.setattr("skillopt_airflow.training.rollouts.workload.PROTOCOL", 0)
    with pytest.raises(ConfigError, match="changed since: the val split, the seed skill, the program of its rollouts "):
        check_same_inputs(run, items | {Split.VAL: other[Split.VAL]}, SkillDocument("# Another\n"), "sha256:other")


@pytest.mark.nightly
def test_a_run_goes_on_under_its_own_settings_only() -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False)
    check_unchanged(training.run, training.config)
    training()
    check_unchanged(training.run, training.config)
    other = Training.of(train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False, train__seed=7)
    with pytest.raises(ConfigError, match=r"changed since: train\.seed"):
        check_unchanged(training.run, other.config)
    of_no_step = {"regate": {"alpha": 0.01}, "retention": {"trajectory_days": 3}, "alerts": {"conn_id": "x"}}
    check_unchanged(training.run, TrainConfig.from_layers(training.config.model_dump(), of_no_step))
