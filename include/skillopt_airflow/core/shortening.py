"""Long texts made shorter."""


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning, a mark, the end."""
    if len(text) <= limit:
        return text
    mark = f"\n[{len(text) - limit} characters left out]\n"
    kept = max(0, limit - len(mark))
    return text[: kept - kept // 2] + mark + text[len(text) - kept // 2 :]
