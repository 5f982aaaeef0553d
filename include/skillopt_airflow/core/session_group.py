"""The knobs of sessions, for benchmarks whose items are worlds with a state."""

from typing import Annotated, Literal

from pydantic import Field

from skillopt_airflow.core.config_group import Count, Group, Positive


class SessionGroup(Group):
    """Sessions, in which the target acts turn by turn, in at most `model.max_turns` turns; for some benchmarks."""

    history: Literal["last_turns", "conversation"] = "last_turns"
    """What the target of harness chat knows of its turns before: last_turns asks it afresh each time and shows the last
    few, conversation goes on with one conversation. Harness tools always has one conversation."""
    last_turns: Count = 2
    """Turns that a fresh prompt shows, each an action and what it brought."""
    show_admissible: bool = True
    """List the actions that would change something."""
    observation_chars: Annotated[int, Field(ge=100)] = 4000
    """Most characters of what a world shows; the middle of the rest is left out."""
    turn_timeout: Positive = 120
    """Seconds that opening a world, or one action in it, may take."""
