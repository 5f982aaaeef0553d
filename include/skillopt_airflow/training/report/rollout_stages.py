"""The rollouts of a run, by moments and stages, for people who look at them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from skillopt_airflow.core.run.state import RunState
from skillopt_airflow.core.run.timeline import Moment, moment_label
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.training.champion.night_plan import ROLES
from skillopt_airflow.training.rollouts.rollout_plan import BATCH_AHEAD, RolloutPlan
from skillopt_airflow.training.run.run import TrainingRun

STAGES: Mapping[str, str] = {
    "evaluate": "candidate on the selection split",
    "rollout": "batch",
    "seed": "seed on the selection split",
    "longitudinal": "skills of two epochs",
    "final": "last skill on the selection split",
    "test": "test",
    "score": "scoring",
    "regate": "night",
    "preflight": "preflight",
}
"""Plans by name, the one that people look for first at the beginning."""
PUBLICATION = "publish-"
_VERSION = re.compile(r"skills/skill_v(\d{4})\.md")


class RunSkill(NamedTuple):
    """A skill of a run."""

    name: str
    """Its key below the run's folder."""
    label: str


class Planned(NamedTuple):
    """The rollouts that a stage planned on a split."""

    skills: tuple[str, ...]
    """Names of RunSkill, in the order of the plan."""
    draws: tuple[int, ...]
    item_ids: tuple[str, ...]


class Stage(NamedTuple):
    """A stage of a moment."""

    moment: Moment
    names: Mapping[str, str]
    """What each stage of the moment is for, by the name of its plan."""
    name: str
    """The stage's own; empty where the moment has none."""
    splits: "Mapping[Split, Planned]"
    """What it rolls out; empty where nothing had to run."""


def reached(run: TrainingRun) -> tuple[Moment, ...]:
    """Return the run's moments as far as it has come, the one that it is at included."""
    state = run.store.find_model(run.keys.runtime_state, RunState)
    if state is None:
        return run.timeline[:1]
    names = [moment.name for moment in run.timeline]
    final = run.timeline[-1]
    if state.moment != final.name:
        return run.timeline[: names.index(state.moment) + 2]
    # A run that was stopped has its end, but not all that lies before it.
    return (*(moment for moment in run.timeline[:-1] if moment.step <= state.step), final)


def label_of(moment: Moment) -> str:
    if moment.kind in ("seed", "final"):
        return "Beginning" if moment.kind == "seed" else "End"
    return moment_label(moment.kind, moment.step, moment.epoch)


def stages_of(run: TrainingRun, moment: Moment) -> dict[str, str]:
    """Return what each plan of a moment is for, by its name, the one that people look for first at the beginning."""
    keys = run.store.list_keys(f"{run.keys.moment(moment).folder}plans/")
    # A batch job has a folder beside its plan, and the batch of the step that follows is shown there.
    names = [PurePosixPath(key).stem for key in keys if PurePosixPath(key).match("plans/*.json")]
    names = [name for name in names if name != BATCH_AHEAD]
    order = [name for name in STAGES if name in names] + [name for name in names if name not in STAGES]
    return {name: STAGES.get(name, f"publication {name.removeprefix(PUBLICATION)}") for name in order}


def find_stage(run: TrainingRun, moments: Sequence[Moment], moment: str, stage: str) -> Stage:
    """Return the stage of these names, or else the newest one that has something to roll out.

    Args:
        moment: a name; that of another moment stands for the newest.
        stage: a name; that of another stage stands for the one that people look for first.
    """
    nothing = None
    for one in [one for one in moments if one.name == moment] or reversed(moments):
        names = stages_of(run, one)
        for name in [stage] if stage in names else names:
            found = Stage(one, names, name, planned(run, one, name))
            if found.splits:
                return found
            nothing = found if nothing is None else nothing
    return Stage(moments[0], {}, "", {}) if nothing is None else nothing


def planned(run: TrainingRun, moment: Moment, stage: str) -> dict[Split, Planned]:
    """Return what a plan of a moment rolls out, by split, without what is rolled out ahead for another moment.

    Raises:
        ObjectMissing: the moment has no such plan.
    """
    plan = run.store.get_model(run.keys.moment(moment).plan(stage), RolloutPlan)
    chunks = [chunk for chunk in plan.chunks if chunk.item_ids and chunk.stage != "speculate"]
    found = {}
    for split in dict.fromkeys(chunk.split for chunk in chunks):
        own = [chunk for chunk in chunks if chunk.split == split]
        found[split] = Planned(
            skills=tuple(dict.fromkeys(chunk.skill.removeprefix(run.keys.folder) for chunk in own)),
            draws=tuple(sorted({chunk.draw for chunk in own})),
            item_ids=tuple(dict.fromkeys(item for chunk in own for item in chunk.item_ids)),
        )
    return found


def skills_of(run: TrainingRun, moment: Moment, stage: str, named: Sequence[str]) -> list[RunSkill]:
    """Return the skills that can be compared at a moment: those that its plan names, its candidates, all versions."""
    state = run.store.find_model(run.keys.runtime_state, RunState)
    versions = [] if state is None else [run.keys.skill(version) for version in range(state.newest + 1)]
    own = run.keys.moment(moment).folder
    candidates = [key for key in run.store.list_keys(own) if key.endswith("/candidate_skill.md")]
    names = (key.removeprefix(run.keys.folder) for key in (*candidates, *versions))
    return [RunSkill(name, _label(name, moment, stage)) for name in dict.fromkeys((*named, *names))]


def current_before(run: TrainingRun, moment: Moment) -> str | None:
    """Return the name of the skill that a moment's candidate has to beat; None where nothing was measured before."""
    place = run.timeline.index(moment)
    before = run.store.find_model(run.keys.moment(run.timeline[place - 1]).state, RunState) if place else None
    return None if before is None else run.keys.skill(before.current.version).removeprefix(run.keys.folder)


def _label(name: str, moment: Moment, stage: str) -> str:
    version = _VERSION.fullmatch(name)
    if version is not None and stage == "regate":
        return ROLES[int(version[1])]
    if version is not None and stage == "score":
        return f"skill {int(version[1]) + 1}"
    if version is not None:
        return "seed" if int(version[1]) == 0 else f"version {int(version[1])}"
    return "what it had to beat" if name.endswith("rival_skill.md") else f"candidate of {label_of(moment).lower()}"
