"""Read durations such as `1h 30m` or `-2d`."""

import re

UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


class SpanError(ValueError):
    """A text is no duration."""


def parse_span(text: str) -> float:
    """Return the seconds of a duration; a minus sign in front counts for all of it."""
    rest = text.strip().lower()
    sign = -1 if rest.startswith("-") else 1
    rest = rest.lstrip("+-").strip()
    if not rest:
        raise SpanError("an empty text is no duration")
    total, end = 0.0, 0
    for part in _PART.finditer(rest):
        if rest[end : part.start()].strip(" ,"):
            raise SpanError(f"cannot read {rest[end : part.start()]!r}")
        total += float(part[1]) * unit_seconds(part[2])
        end = part.end()
    if rest[end:].strip(" ,"):
        raise SpanError(f"cannot read {rest[end:]!r}")
    return sign * total


def unit_seconds(name: str) -> int:
    """Return the seconds of a unit by its letter or its name, in singular or plural."""
    if name in UNITS:
        return UNITS[name]
    names = {"week": "w", "day": "d", "hour": "h", "minute": "m", "second": "s"}
    singular = name[:-1] if name.endswith("s") else name
    if singular not in names:
        raise SpanError(f"unknown unit {name!r}")
    return UNITS[names[singular]]
