"""Write durations."""

from spans.parsing import UNITS


def format_span(seconds: float, parts: int = 2) -> str:
    """Return a duration in its largest units, at most so many of them, rounded down: `1h 30m`."""
    sign = "-" if seconds < 0 else ""
    rest = int(abs(seconds))
    written: list[str] = []
    for unit, size in UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            written.append(f"{count}{unit}")
    if not written:
        return "0s"
    return sign + " ".join(written[:parts])


def format_clock(seconds: int) -> str:
    """Return hours, minutes and seconds as `26:03:04`; a negative duration has its sign in front."""
    sign = "-" if seconds < 0 else ""
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}:{minutes:02}:{rest:02}"
