"""Knobs for publishing, nights, retention and alerts."""

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from skillopt_airflow.core.config.group import Group, ObjectName
from skillopt_airflow.core.config.training_groups import PolicyName
from skillopt_airflow.core.values.text import flaw_of_text

# Python's datetime has no dates beyond these.
MAX_DAYS = 700_000
MAX_HOURS = 10_000_000
MAX_DESCRIPTION = 1024
"""Limit of the Agent Skills specification."""
Hours = Annotated[float, Field(gt=0.0, le=MAX_HOURS)]


class PublishingGroup(Group):
    """Requirements for a new champion, measured on held-out items after training."""

    gate_policy: PolicyName = "exact_paired"
    """Test that the candidate must pass against the champion, or against the seed skill if there is no champion.
    strict only compares the means."""
    gate_alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """False positive rate of exact_paired, over all tests on the same items together."""
    samples: Annotated[int, Field(ge=1, le=100)] = 1
    """Rollouts per held-out item under each of the two skills. Stored rollouts are reused."""
    approval: bool = False
    """Require a person's approval in Airflow's UI."""
    approval_hours: Hours = 24.0
    """Hours until a request without an answer is rejected. Fixed when the DAG is parsed."""
    approvers: tuple[ObjectName, ...] = ()
    """Ids of the Airflow users who may approve, such as their names in the simple auth manager. Empty: everyone who may
    act on the task. Fixed when the DAG is parsed."""

    description: str | None = None
    """Situations in which an agent should use the skill, for SKILL.md: 1 to 1,024 characters without angle brackets.
    Default: the skill's title and first sentence."""

    @field_validator("description")
    @classmethod
    def _fits_skill_md(cls, text: str | None) -> str | None:
        if text is not None and not (text.strip() and len(text) <= MAX_DESCRIPTION and not re.search("[<>]", text)):
            raise ValueError(f"write 1 to {MAX_DESCRIPTION:,} characters without angle brackets")
        if text is not None and (flaw := flaw_of_text(text)):
            raise ValueError(f"the text {flaw}. Remove it")
        return text


class RegateGroup(Group):
    """The nightly check of the champion on fresh items."""

    schedule: ObjectName = "@daily"
    """End of each night, as a cron expression or preset. Fixed when the DAG is parsed."""
    timezone: str = "UTC"
    """Time zone of the schedule and of the nights' dates: an IANA name such as Europe/Berlin. Fixed when the DAG is
    parsed."""
    fresh_uri: ObjectName | None = None
    """Path or URL of a folder of date=YYYY-MM-DD/items.json, in the formats of data.uri. Default: `fresh` below
    data.uri, or next to it if data.uri is a file."""
    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """Probability per month (30 nights) of demoting a champion that is as good as the previous one."""
    floor: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    """Points below the published score at which a single night is reported at once. Default: no warning."""
    on_demote: Literal["report", "ask", "rollback"] = "ask"
    """Action on a demotion: report it, ask for a rollback in Airflow's UI, or roll back at once."""
    train_on_decline: bool = False
    """Start a training after any decline: a champion that is demoted, stale, or below its published score. Fixed when
    the DAG is parsed."""

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
    """Days to keep trajectories (also the cache of finished rollouts), grades, search results, and corpora after their
    last use. Benchmarks that share a bucket keep corpora for the longest of their values. Runs can't change it.
    Default: indefinitely."""


class AlertsGroup(Group):
    """Alerts about failed runs and late nights."""

    conn_id: ObjectName | None = None
    """Airflow connection (type http) that receives alerts as a POST with JSON. Default: no alerts. Fixed when the DAG
    is parsed."""
