"""Long texts made shorter."""

MOST_TOLD_CHARS = 24_000
"""Limit of what a target is told between two of its answers: a tool's result, or a benchmark's feedback."""


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning, a mark, the end."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - len(_mark(len(text))))
    return (text[: kept - kept // 2] + _mark(len(text) - kept) + text[len(text) - kept // 2 :])[:limit]


def _mark(left_out: int) -> str:
    return f"\n[{left_out} characters left out]\n"
