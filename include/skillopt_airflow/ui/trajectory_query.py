"""The parameters in the address of a page of trajectories; each field is one of a GET request."""

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlencode

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skillopt_airflow.core.types import Split, Status

Show = Literal["all", "success", "failure", "no_score", "won", "lost", "tied", "flipped"]
COMPARING: frozenset[Show] = frozenset({"won", "lost", "tied", "flipped"})
"""Those that need another skill."""
Sort = Literal["item_id", "score", "other", "difference", "status", "tokens", "seconds"]


class TrajectoryQuery(BaseModel):
    """The parameters; one that is left out has its default."""

    model_config = ConfigDict(frozen=True)

    moment: str = ""
    """Of a run, as `Moment.name`; empty for the newest that has rollouts."""
    at: str = Field(default="", exclude=True)
    """Moment of the form that the other parameters were chosen in; empty where no form was."""
    at_stage: str = Field(default="", exclude=True)
    """Stage of that form."""
    stage: str = ""
    """Of the moment, by the name of its plan."""
    cell: int = Field(default=0, ge=0)
    """Of an evaluation under several targets and harnesses, by its place among them."""
    target: str = ""
    harness: str = ""
    split: Literal[""] | Split = ""
    skill: str = ""
    """Of a run, its key below the run's folder; else the beginning of its SHA-256, 12 digits."""
    draw: int = Field(default=0, ge=0)
    variant: int = Field(default=0, ge=0)
    """Where a skill has rollouts under several settings: the place of these, most rollouts first."""
    other: str = ""
    """Another skill to compare with; empty for none."""
    show: Show = "all"
    status: Literal[""] | Status = ""
    task_type: str = ""
    text: str = ""
    within: Literal["names", "said"] = "names"
    """Where the text is looked for: in item ids and errors, or in what was said."""
    sort: Sort = "item_id"
    order: Literal["up", "down"] = "up"
    page: int = Field(default=1, ge=1)
    item: str = ""
    """The item that is opened, by its id; empty for the list."""
    mark: str = Field(default="", pattern=r"^[0-9a-f]*$")
    """The beginning of the item's fingerprint, which also tells its contents of different times apart."""
    place: int = Field(default=0, ge=0)
    """The item by its place in the filtered list, from 1, where it is not named; else where it was found there."""

    @model_validator(mode="before")
    @classmethod
    def _forget_skills_of_another_stage(cls, asked: dict[str, Any]) -> dict[str, Any]:
        """Leave out skills that a form was sent with only because it showed them, when its moment or stage changed."""
        shown = (("at", "moment"), ("at_stage", "stage"))
        if all(asked.get(of_form, "") in ("", asked.get(chosen)) for of_form, chosen in shown):
            return asked
        return {name: value for name, value in asked.items() if name not in ("skill", "other")}

    @property
    def opens(self) -> bool:
        """True if an item is opened."""
        return bool(self.item or self.mark)

    @property
    def compares(self) -> bool:
        """True if it shows rollouts by how another skill did."""
        return self.show in COMPARING or self.sort in ("other", "difference")

    @property
    def filters(self) -> bool:
        """True if not all rollouts are shown."""
        return self.show != "all" or bool(self.status or self.task_type or self.text)

    def address(self, **changes: object) -> str:
        """Return the address of the same page with other values, relative to it."""
        return f"?{urlencode(self.changed(**changes).model_dump(mode='json', exclude_defaults=True))}"

    def changed(self, **changes: object) -> Self:
        """Return the parameters with other values, which may be texts."""
        return self.model_validate(self.model_dump() | changes)


Asked = Annotated[TrajectoryQuery, Query()]
