"""Texts that would be too long, made short."""

MAX_ERROR_CHARS = 500


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters: the beginning, a mark, the end."""
    if len(text) <= limit:
        return text
    mark = f"\n[{len(text) - limit} characters left out]\n"
    kept = max(0, limit - len(mark))
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]


def reason(text: str) -> str:
    """An error as a trajectory tells it: one line, not too long."""
    return " ".join(text.split())[:MAX_ERROR_CHARS]
