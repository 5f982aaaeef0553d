"""The knobs of services after a training: publishing, nights, the cleanup and alerts."""

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from skillopt_airflow.core.config.group import Group, ObjectName
from skillopt_airflow.core.values.text import flaw_of_text

# With these limits, all dates stay in Python's range.
MAX_DAYS = 700_000
MAX_HOURS = 10_000_000
MAX_DESCRIPTION = 1024
"""Limit of the Agent Skills specification."""
Hours = Annotated[float, Field(gt=0.0, le=MAX_HOURS)]


class PublishingGroup(Group):
    """The requirements for a new champion, measured after training on held-out items."""

    gate_policy: Literal["strict", "exact_paired"] = "exact_paired"
    """Policy by which the candidate must beat the champion, or the seed skill if there is none. strict isn't a
    statistical test."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Significance level of exact_paired: the false positive rate over all looks at the same items."""
    draws: Annotated[int, Field(ge=1, le=100)] = 1
    """Rollouts per item and skill on the split; stored rollouts are reused."""
    approval: bool = False
    """Require a person's approval in Airflow's UI."""
    approval_hours: Hours = 24.0
    """Hours after which a publication without an approval is rejected. Fixed at DAG parse time."""
    approvers: tuple[ObjectName, ...] = ()
    """Ids of the Airflow users who may approve, such as their names in the simple auth manager. Default: everyone who
    may act on the task. Fixed at DAG parse time."""

    description: str | None = None
    """Description in SKILL.md of when an agent should use the skill: 1 to 1,024 characters without angle brackets.
    Default: the skill's title and first sentence."""

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
    """End of a night, as a cron expression or preset. Fixed at DAG parse time."""
    timezone: str = "UTC"
    """Time zone of the nights' schedule and dates, as an IANA name such as Europe/Berlin. Fixed at DAG parse time."""
    fresh_uri: ObjectName | None = None
    """Path or URL of a folder of date=YYYY-MM-DD/items.json, with the formats of data.uri. Default: `fresh` below
    data.uri, or next to it if data.uri is a file."""
    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Probability per 30 nights of demoting a champion that is as good as the previous one."""
    floor: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    """Points below the published score at which a single night is reported immediately. Default: none."""
    on_demote: Literal["report", "ask", "rollback"] = "ask"
    """Action after a demotion: only the report, a question in Airflow's UI, or an immediate rollback."""
    train_on_decline: bool = False
    """Start a training after any decline: a champion that is demoted, stale, or below its published score. Fixed at
    DAG parse time."""

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError("unknown time zone. Use an IANA name, such as Europe/Berlin or UTC") from error
        return name


class RetentionGroup(Group):
    """The cleanup of data from trainings and nights."""

    trajectory_days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = None
    """Days to keep trajectories (the cache of finished rollouts), grades of judge models, search results, and corpora
    after their last use. Default: indefinitely. For corpora, the longest value of the benchmarks in a bucket counts.
    Runs can't override it."""


class AlertsGroup(Group):
    """Alerts about failed runs and late nights."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) for a POST request with JSON. Default: no alerts. Fixed at DAG parse time."""
