"""Long texts made shorter."""

from collections.abc import Sequence

MOST_TOLD_CHARS = 24_000
"""Limit of what a target is told between two of its answers: a tool's result, or a benchmark's feedback."""


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning, a mark, the end."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - len(_mark(len(text))))
    return (text[: kept - kept // 2] + _mark(len(text) - kept) + text[len(text) - kept // 2 :])[:limit]


def longest_that_fits(lengths: Sequence[int], room: int) -> int:
    """Return the length to cut longer texts to so that all texts together have at most `room` characters."""
    left = room
    for place, length in enumerate(sorted(lengths)):
        share = max(0, left) // (len(lengths) - place)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)


def _mark(left_out: int) -> str:
    return f"\n[{left_out} characters left out]\n"
