"""Settings as values of Python."""

YES = ("yes", "true", "on", "1")
NO = ("no", "false", "off", "0")


def as_bool(value: str) -> bool:
    """Return a truth value by any of its usual words, in either case."""
    word = value.strip().lower()
    if word not in YES + NO:
        raise ValueError(f"{value!r} is neither yes nor no")
    return word in YES


def as_list(value: str, separator: str = ",") -> list[str]:
    """Split a value at separators and line ends; empty parts are left out."""
    parts = (part.strip() for line in value.splitlines() for part in line.split(separator))
    return [part for part in parts if part]


def merged(*layers: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the settings of all layers; a later one overrides single settings. The layers stay as they are."""
    result: dict[str, dict[str, str]] = {}
    for layer in layers:
        for section, settings in layer.items():
            result[section] = {**result.get(section, {}), **settings}
    return result
