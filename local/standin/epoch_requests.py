"""What the requests of an epoch's end hold."""

from local.standin.requests import Received, SeenTrajectory
from local.standin.sections import Sections


class ComparedGroups(Received):
    """Items with their trajectory under the present skill, by what became of them; a group not shown is empty."""

    improved: tuple[SeenTrajectory, ...] = ()
    regressed: tuple[SeenTrajectory, ...] = ()
    persistent_failure: tuple[SeenTrajectory, ...] = ()
    stable_success: tuple[SeenTrajectory, ...] = ()

    @property
    def failing(self) -> tuple[SeenTrajectory, ...]:
        """What the present skill gets wrong."""
        return (*self.persistent_failure, *self.regressed)

    @property
    def everything(self) -> tuple[SeenTrajectory, ...]:
        """All items that are shown."""
        return (*self.failing, *self.improved, *self.stable_success)


class TriedEdit(Received):
    """An edit of a former step; its op may be one that only the optimizer's own stages use."""

    op: str = ""
    anchor: str = ""
    content: str = ""


class EpochStep(Received):
    """A step of the epoch: what it tried and what the gate did with it."""

    step: int = 0
    action: str = ""
    score_before: float | None = None
    score_after: float | None = None
    edits: tuple[TriedEdit, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the candidate became the current skill."""
        return self.action.startswith("accept")

    @property
    def rejected(self) -> bool:
        """Whether the gate turned it down; an undecided step is neither."""
        return self.action == "reject"


class SlowUpdateRequest(Received):
    """The comparison, and the guidance to overwrite."""

    skill: str
    guidance: str
    comparison: ComparedGroups


class MetaSkillRequest(Received):
    """The comparison and the epoch's steps, and the memory to overwrite."""

    memory: str
    comparison: ComparedGroups
    epoch_steps: tuple[EpochStep, ...]


class MetaReflectRequest(Received):
    """The epoch's steps, and how many edits may come of them; None is any number."""

    skill: str
    budget: int | None
    epoch_steps: tuple[EpochStep, ...]
    meta_skill: str = ""


def parse_slow_update(prompt: str) -> SlowUpdateRequest:
    """Raises ModelError on a section that is missing or malformed, as the others do."""
    sections = Sections(prompt)
    return SlowUpdateRequest(
        skill=sections.raw("skill"),
        guidance=sections.raw("guidance"),
        comparison=sections.json("comparison", ComparedGroups),
    )


def parse_meta_skill(prompt: str) -> MetaSkillRequest:
    """The sections of a meta_skill request."""
    sections = Sections(prompt)
    return MetaSkillRequest(
        memory=sections.raw("memory"),
        comparison=sections.json("comparison", ComparedGroups),
        epoch_steps=sections.json("epoch_steps", tuple[EpochStep, ...]),
    )


def parse_meta_reflect(prompt: str) -> MetaReflectRequest:
    """The sections of a meta_reflect request."""
    sections = Sections(prompt)
    return MetaReflectRequest(
        skill=sections.raw("skill"),
        budget=sections.limit("budget"),
        epoch_steps=sections.json("epoch_steps", tuple[EpochStep, ...]),
        meta_skill=sections.meta_skill,
    )
