"""The knobs of sessions, for benchmarks whose items are worlds with a state."""

from typing import Literal

from skillopt_airflow.core.config_group import Group


class SessionGroup(Group):
    """Sessions, in which the target acts turn by turn, in at most `model.max_turns` turns; for some benchmarks."""

    history: Literal["last_turns", "conversation"] = "last_turns"
    """What the target of harness chat knows of its turns before: last_turns asks it afresh each time and shows the last
    two, conversation goes on with one conversation. Harness tools always has one conversation."""
