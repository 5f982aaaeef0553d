"""The report of a run, finished or running, and its rollouts by moment and stage."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.run.history import History, Publication
from skillopt_airflow.core.run.state import Measured, RunState
from skillopt_airflow.core.run.timeline import FINAL, Moment, MomentKind, moment_label
from skillopt_airflow.core.values.provenance import LinesOfSkill
from skillopt_airflow.core.values.types import Split, Trajectory
from skillopt_airflow.optimizer.judge import judge_use
from skillopt_airflow.report.run_page import render, with_outcome
from skillopt_airflow.report.view import Example, Judging, ReportView, example_ids, example_of, judging_of
from skillopt_airflow.store.data.picture_files import thumbnail
from skillopt_airflow.store.keys import MomentKeys
from skillopt_airflow.tasks.grading import GradingRequest
from skillopt_airflow.tasks.protocols import AsksJudge
from skillopt_airflow.training.champion.night_plan import CONTENDERS
from skillopt_airflow.training.champion.publication import count_looks
from skillopt_airflow.training.report.history import history_of, history_so_far
from skillopt_airflow.training.rollouts.rollout_plan import BATCH_AHEAD, RolloutPlan
from skillopt_airflow.training.run.run import TrainingRun, pictures

STAGES: Mapping[str, str] = {
    "evaluate": "candidate on the selection split",
    "rollout": "batch",
    "seed": "seed on the selection split",
    "compare_epochs": "skills of two epochs",
    "final": "last skill on the selection split",
    "test": "test",
    "score": "scoring",
    "regate": "night",
    "preflight": "preflight",
}
"""Labels of plans by name, the most relevant first."""
PUBLICATION = "publish-"
_VERSION = re.compile(r"skills/skill_v(\d{4})\.md")


class RunSkill(NamedTuple):
    """A skill of a run."""

    name: str
    """Its key relative to the run's folder."""
    label: str


class SplitRollouts(NamedTuple):
    """A stage's planned rollouts on a split."""

    skills: tuple[str, ...]
    """Skill names in plan order."""
    samples: tuple[int, ...]
    item_ids: tuple[str, ...]


class PlannedStage(NamedTuple):
    """A stage of a moment, with its planned rollouts."""

    moment: Moment
    names: Mapping[str, str]
    """Labels of the moment's stages by plan name."""
    name: str
    """Name of this stage's plan; empty if the moment has none."""
    splits: "Mapping[Split, SplitRollouts]"
    """Planned rollouts by split; empty if nothing had to run."""


def reached_moments(run: TrainingRun) -> tuple[Moment, ...]:
    """Return the moments that the run reached, the current one included."""
    state = run.store.find_model(run.keys.runtime_state, RunState)
    if state is None:
        return run.timeline[:1]
    names = [moment.name for moment in run.timeline]
    final = run.timeline[-1]
    if state.moment != final.name:
        return run.timeline[: names.index(state.moment) + 2]
    # A stopped run has its end, but not all moments before it.
    return (*(moment for moment in run.timeline[:-1] if moment.step <= state.step), final)


def label_of(moment: Moment) -> str:
    if moment.kind in ("seed", "final"):
        return "Beginning" if moment.kind == "seed" else "End"
    return moment_label(moment.kind, moment.step, moment.epoch)


def stages_of(run: TrainingRun, moment: Moment) -> dict[str, str]:
    """Return the labels of a moment's plans by name, the most relevant first."""
    keys = run.store.list_keys(f"{run.keys.moment(moment).folder}plans/")
    # Skip the folders of batch jobs, and the batch ahead, which is shown with its own step.
    names = [PurePosixPath(key).stem for key in keys if PurePosixPath(key).match("plans/*.json")]
    names = [name for name in names if name != BATCH_AHEAD]
    order = [name for name in STAGES if name in names] + [name for name in names if name not in STAGES]
    return {name: STAGES.get(name, f"publication {name.removeprefix(PUBLICATION)}") for name in order}


def find_stage(run: TrainingRun, moments: Sequence[Moment], moment: str, stage: str) -> PlannedStage:
    """Return the named stage, or the most relevant one with rollouts: of the named moment, else of the newest."""
    nothing = None
    for one in [one for one in moments if one.name == moment] or reversed(moments):
        names = stages_of(run, one)
        for name in [stage] if stage in names else names:
            found = PlannedStage(one, names, name, planned_rollouts(run, one, name))
            if found.splits:
                return found
            nothing = found if nothing is None else nothing
    return PlannedStage(moments[0], {}, "", {}) if nothing is None else nothing


def planned_rollouts(run: TrainingRun, moment: Moment, stage: str) -> dict[Split, SplitRollouts]:
    """Return a plan's rollouts by split, without those ahead for another moment; raise ObjectMissing without a plan."""
    plan = run.store.get_model(run.keys.moment(moment).plan(stage), RolloutPlan)
    chunks = [chunk for chunk in plan.chunks if chunk.item_ids and chunk.stage != "speculate"]
    found = {}
    for split in dict.fromkeys(chunk.split for chunk in chunks):
        own = [chunk for chunk in chunks if chunk.split == split]
        found[split] = SplitRollouts(
            skills=tuple(dict.fromkeys(chunk.skill.removeprefix(run.keys.folder) for chunk in own)),
            samples=tuple(sorted({chunk.sample for chunk in own})),
            item_ids=tuple(dict.fromkeys(item for chunk in own for item in chunk.item_ids)),
        )
    return found


def skills_of(run: TrainingRun, moment: Moment, stage: str, named: Sequence[str]) -> list[RunSkill]:
    """Return the skills to compare at a moment: those of its plan, its candidates, all versions."""
    state = run.store.find_model(run.keys.runtime_state, RunState)
    versions = [] if state is None else [run.keys.skill(version) for version in range(state.newest + 1)]
    own = run.keys.moment(moment).folder
    candidates = [key for key in run.store.list_keys(own) if key.endswith("/candidate_skill.md")]
    names = (key.removeprefix(run.keys.folder) for key in (*candidates, *versions))
    return [RunSkill(name, _label(name, moment, stage)) for name in dict.fromkeys((*named, *names))]


def rival_before(run: TrainingRun, moment: Moment) -> str | None:
    """Return the skill that a moment's candidate must beat; None if nothing was measured before."""
    place = run.timeline.index(moment)
    before = run.store.find_model(run.keys.moment(run.timeline[place - 1]).state, RunState) if place else None
    return None if before is None else run.keys.skill(before.current.version).removeprefix(run.keys.folder)


def _label(name: str, moment: Moment, stage: str) -> str:
    version = _VERSION.fullmatch(name)
    if version is not None and stage == "regate":
        return CONTENDERS[int(version[1])]
    if version is not None and stage == "score":
        return f"skill {int(version[1]) + 1}"
    if version is not None:
        return "seed" if int(version[1]) == 0 else f"version {int(version[1])}"
    return "rival" if name.endswith("rival_skill.md") else f"candidate of {label_of(moment).lower()}"


def write_report(run: TrainingRun, published: Publication | None = None, withheld: str = "") -> History:
    """Store history.json and report.html; publishing overwrites them.

    A publication stays reported even if a later one is withheld. If counted rollouts are gone since, only the outcome
    of publishing is added.
    """
    before = run.store.find_model(run.keys.history, History)
    # Without an outcome, the training ends, maybe differently than before it was cleared.
    is_late = published is not None or withheld != ""
    if published is None and before is not None:
        published = before.published
    withheld = "" if published is not None else withheld
    test_looks = count_looks(run, run.published, Split.TEST)
    history = history_of(run, published, withheld, test_looks)
    if before is not None and is_late and _lacks_rollouts(history, before):
        late = {"published": published, "withheld": withheld, "test_looks": test_looks}
        history = before.model_copy(update=late)
        page = with_outcome(run.store.get_text(run.keys.report), with_skill(run, history))
    else:
        page = render(view_of(run, history))
    run.store.put_text(run.keys.report, page)
    run.store.put_model(run.keys.history, history)
    return history


def _lacks_rollouts(history: History, before: History) -> bool:
    """Return whether rollouts that an earlier report counted were removed."""
    now, then = history.rollouts, before.rollouts
    coverage = {name: score.coverage for name, score in history.test.items()}
    lost = any(coverage.get(name, 0.0) < score.coverage for name, score in before.test.items())
    return lost or now.ran < then.ran


def view_of(run: TrainingRun, history: History) -> ReportView:
    final = run.state(run.timeline[-1])
    return with_skill(run, history, judging=_judging(run, final), examples=_examples(run, final.best))


def with_skill(run: TrainingRun, history: History, **more: object) -> ReportView:
    """Return the history with its best skill and further fields."""
    version = history.best.version
    skill = {
        "skill": run.skill(version).text,
        "lines": run.store.get_model(run.keys.line_origins(version), LinesOfSkill).lines,
    }
    return ReportView.model_validate(dict(history) | skill | more)


def _judging(run: TrainingRun, final: RunState) -> Judging | None:
    use, benchmark = judge_use(run.config.evaluation, run.benchmark), run.benchmark
    if use == "rules" or not isinstance(benchmark, AsksJudge):
        return None
    # A stopped run doesn't test its best skill.
    split = Split.TEST if run.config.evaluation.eval_test and not final.stopped else Split.VAL
    rollouts = run.stored(split, run.skill(final.best.version), 0, run.item_refs(split))

    def request(trajectory: Trajectory) -> GradingRequest:
        [item] = run.items_of(split, [trajectory.item_id])
        return benchmark.grading(item, trajectory)

    return judging_of(list(rollouts.values()), split, use, str(run.config.model.judge), request)


def _examples(run: TrainingRun, best: Measured) -> tuple[Example, ...]:
    items = [item for item in run.items_of(Split.VAL, example_ids(best.evaluation.scores)) if not item.unusable]
    rollouts = run.stored(Split.VAL, run.skill(best.version), 0, items)
    seen = pictures(run, items)
    made = (
        example_of(rollouts[item.id], {name: thumbnail(content) for name, content in seen[item.id].items()})
        for item in items
        if item.id in rollouts
    )
    return tuple(example for example in made if example is not None)


FIRST_TASKS: Mapping[MomentKind, str] = {
    "seed": "prepare",
    "step": "rollout",
    "slow_update": "compare_epochs",
    "meta_reflect": "meta_reflect",
    "final": "measure_last",
}
"""The first task of each moment, which hasn't stored anything."""


def live_view(run: TrainingRun) -> ReportView | None:
    """Return the view of a running run; None before its seed is measured."""
    try:
        return with_skill(run, history_so_far(run, run.newest_state()), task=current_task(run))
    except ObjectMissing:
        # The seed's state is stored right after the run's.
        return None


def has_ended(run: TrainingRun) -> bool:
    newest = run.store.find_model(run.keys.runtime_state, RunState)
    return newest is not None and newest.moment == FINAL and run.store.exists(run.keys.report)


def current_task(run: TrainingRun) -> str:
    """Return the current moment and its task, such as `Step 3: evaluate`."""
    newest = run.store.find_model(run.keys.runtime_state, RunState)
    moment = run.timeline[0] if newest is None else _following(run, newest)
    keys, begun = run.keys.moment(moment), run.store.list_dated(run.keys.runtime_state).values()
    dated = run.store.list_dated(keys.folder).items()
    # Older documents are left over from an earlier attempt.
    stored = {key for key, written in dated if written >= max(begun, default=written)}
    tasks = [task for key, task in _documents(keys) if key in stored]
    return f"{label_of(moment)}: {tasks[-1] if tasks else FIRST_TASKS[moment.kind]}"


def _following(run: TrainingRun, newest: RunState) -> Moment:
    names = [moment.name for moment in run.timeline]
    return run.timeline[-1 if newest.stopped else min(names.index(newest.moment) + 1, len(names) - 1)]


def _documents(keys: MomentKeys) -> Sequence[tuple[str, str]]:
    """Return a moment's documents in storage order, each with the task that follows."""
    return (
        (keys.plan("rollout"), "rollout"),
        (keys.plan("compare_epochs"), "rollout"),
        (keys.reflected_items, "update"),
        (keys.merged_patch, "update"),
        (keys.comparison, "slow_update"),
        (keys.plan("evaluate"), "evaluate"),
        (keys.gate, "gate"),
        (keys.plan("final"), "evaluate_last"),
        (keys.plan("test"), "test"),
        # The seed's test runs next to it.
        (keys.plan("seed"), "score_seed"),
    )
