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
"""Labels of plans by name, the most relevant first."""
PUBLICATION = "publish-"
_VERSION = re.compile(r"skills/skill_v(\d{4})\.md")


class RunSkill(NamedTuple):
    """A skill of a run."""

    name: str
    """Its key relative to the run's folder."""
    label: str


class Planned(NamedTuple):
    """A stage's planned rollouts on a split."""

    skills: tuple[str, ...]
    """Skill names in plan order."""
    draws: tuple[int, ...]
    item_ids: tuple[str, ...]


class Stage(NamedTuple):
    """A stage of a moment, with its planned rollouts."""

    moment: Moment
    names: Mapping[str, str]
    """Labels of the moment's stages by plan name."""
    name: str
    """Name of this stage's plan; empty if the moment has none."""
    splits: "Mapping[Split, Planned]"
    """Planned rollouts by split; empty if nothing had to run."""


def reached(run: TrainingRun) -> tuple[Moment, ...]:
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


def find_stage(run: TrainingRun, moments: Sequence[Moment], moment: str, stage: str) -> Stage:
    """Return the named stage, else the newest stage with rollouts.

    Args:
        moment: a name; an unknown one means the newest.
        stage: a name; an unknown one means the most relevant.
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
    """Return a plan's rollouts by split, without those ahead for another moment.

    Raises:
        ObjectMissing: there is no such plan.
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
    """Return the skills to compare at a moment: those of its plan, its candidates, all versions."""
    state = run.store.find_model(run.keys.runtime_state, RunState)
    versions = [] if state is None else [run.keys.skill(version) for version in range(state.newest + 1)]
    own = run.keys.moment(moment).folder
    candidates = [key for key in run.store.list_keys(own) if key.endswith("/candidate_skill.md")]
    names = (key.removeprefix(run.keys.folder) for key in (*candidates, *versions))
    return [RunSkill(name, _label(name, moment, stage)) for name in dict.fromkeys((*named, *names))]


def current_before(run: TrainingRun, moment: Moment) -> str | None:
    """Return the skill that a moment's candidate must beat; None if nothing was measured before."""
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
    return "rival" if name.endswith("rival_skill.md") else f"candidate of {label_of(moment).lower()}"
