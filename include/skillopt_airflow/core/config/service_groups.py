"""The knobs of what follows a training: publishing, nights, the cleanup and alerts."""

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from skillopt_airflow.core.config.group import Group, ObjectName
from skillopt_airflow.core.values.text import flaw_of_text

# So many days ago, and so many hours from today, there still is a date.
MAX_DAYS = 700_000
MAX_HOURS = 10_000_000
MAX_DESCRIPTION = 1024
"""Limit of the Agent Skills specification."""
Hours = Annotated[float, Field(gt=0.0, le=MAX_HOURS)]


class PublishingGroup(Group):
    """The requirements for becoming the champion, measured after training on items by which nothing was selected."""

    gate_policy: Literal["strict", "exact_paired"] = "exact_paired"
    """Test by which the candidate must beat the champion, or the seed skill before there is one; strict is no test."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Share of the candidates that change nothing which exact_paired may publish, over all looks at the same items
    together."""
    draws: Annotated[int, Field(ge=1, le=100)] = 1
    """Rollouts of every item of that split, by each of the two skills; stored ones are reused."""
    approval: bool = False
    """Ask a person for approval in Airflow's UI."""
    approval_hours: Hours = 24.0
    """Hours after which what nobody approved is rejected; fixed when the DAG is parsed."""
    approvers: tuple[ObjectName, ...] = ()
    """Ids of the users of Airflow who may approve, such as their names in the simple auth manager; everybody who may
    act on the task when empty. Fixed when the DAG is parsed."""

    description: str | None = None
    """When an agent should use the skill, in SKILL.md: 1 to 1,024 characters without angle brackets. Default: the
    skill's own title and first sentence."""

    @field_validator("description")
    @classmethod
    def _fits_skill_md(cls, text: str | None) -> str | None:
        if text is not None and not (text.strip() and len(text) <= MAX_DESCRIPTION and not re.search("[<>]", text)):
            raise ValueError(f"write 1 to {MAX_DESCRIPTION:,} characters, without angle brackets")
        if text is not None and (flaw := flaw_of_text(text)):
            raise ValueError(f"the text {flaw}. Remove it")
        return text


class RegateGroup(Group):
    """The nightly check of the champion on fresh items."""

    schedule: ObjectName = "@daily"
    """End of a night, as a cron expression or preset; fixed when the DAG is parsed."""
    timezone: str = "UTC"
    """Time zone of schedule and dates of the nights, by its name in the IANA database, such as Europe/Berlin; fixed
    when the DAG is parsed."""
    fresh_uri: ObjectName | None = None
    """Folder of date=YYYY-MM-DD/items.json, in the ways and formats of data.uri; when unset, `fresh` below data.uri, or
    beside it where that is one file."""
    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Chance a month, of 30 nights, of demoting a champion that is as good as the one before it."""
    floor: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    """Points under the published score below which a single night is reported at once; none when unset."""
    on_demote: Literal["report", "ask", "rollback"] = "ask"
    """Consequence of a demotion: nothing but the report, a question in Airflow's UI, or the rollback at once."""
    train_on_decline: bool = False
    """Start a training after any decline: a champion that is demoted, stale, or below its published score; fixed when
    the DAG is parsed."""

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"no time zone is called {name!r}; expected a name such as Europe/Berlin or UTC"
            ) from error
        return name


class RetentionGroup(Group):
    """The cleanup of data that trainings and nights leave."""

    trajectory_days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = None
    """Days for which trajectories are kept, which are the cache of finished rollouts, too, the grades that judges
    gave, what searches found, and corpora after their last use; for ever when unset. Of benchmarks that have corpora in
    one bucket, the longest counts for these. No run can change it for the cleanup."""


class AlertsGroup(Group):
    """Alerts about a run that fails or a night that is late."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) that gets a POST with JSON; nobody is told when unset. Fixed when the DAG is
    parsed."""
