"""The stand-in's notes on each picture, written before it answers, by which an item can be tried again."""

import re
from collections.abc import Sequence

from local.standin.stage_request import SeenTrajectory

_SEEN = re.compile(r"<picture>\n(?P<seen>.*?)\n?</picture>", re.DOTALL)


def transcription(seen: Sequence[str]) -> str:
    """Return what was seen on each picture, in their order, as the first part of a reply."""
    return "".join(f"<picture>\n{one}\n</picture>\n" for one in seen)


def transcribed(trajectory: SeenTrajectory) -> list[str]:
    """Return what the target's first reply says of each picture; empty if it says nothing of them."""
    replies = (message.content for message in trajectory.messages if message.role == "assistant")
    return next((seen for reply in replies if (seen := _SEEN.findall(reply))), [])
