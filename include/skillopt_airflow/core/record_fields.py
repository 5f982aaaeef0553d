"""Reading what a record must hold, with errors that name the field."""

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import JsonObject

MAX_SHOWN = 80
"""Characters of an unusable value that an error shows."""


def text_at(record: JsonObject, *path: str) -> str:
    """Return the text at a key, or at the end of a path of keys.

    Raises:
        DataError: there is none, or it is blank; the message names the path.
    """
    value = _at(record, path)
    if not isinstance(value, str) or not value.strip():
        raise unusable(path, "a non-empty text", value)
    return value


def texts_at(record: JsonObject, *path: str) -> list[str]:
    """Return the list of texts at a key, or at the end of a path of keys.

    Raises:
        DataError: there is no list, it is empty, or one of its texts is blank; the message names the path.
    """
    value = _at(record, path)
    texts = [entry for entry in value if isinstance(entry, str) and entry.strip()] if isinstance(value, list) else []
    if not isinstance(value, list) or not texts or len(texts) < len(value):
        raise unusable(path, "a list of at least one non-empty text", value)
    return texts


def objects_at(record: JsonObject, *path: str) -> list[JsonObject]:
    """Return the list of objects at a key, or at the end of a path of keys.

    Raises:
        DataError: there is no list, it is empty, or an entry is no object; the message names the path.
    """
    value = _at(record, path)
    if not isinstance(value, list) or not value:
        raise unusable(path, "a list of objects", value)
    for number, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise unusable((*path[:-1], f"{path[-1]}[{number}]"), "an object", entry)
    return [entry for entry in value if isinstance(entry, dict)]


def whole_number_at(record: JsonObject, *path: str) -> int:
    """Return the whole number at a key, or at the end of a path of keys.

    Raises:
        DataError: there is none; the message names the path.
    """
    value = _at(record, path)
    if isinstance(value, bool) or not isinstance(value, int):
        raise unusable(path, "a number", value)
    return value


def unusable(path: tuple[str, ...], expected: str, value: JsonValue) -> DataError:
    """Return the error that says what a path should lead to, and what is there."""
    return DataError(f"{'.'.join(path)}: expected {expected}, got {shown(value)}")


def shown(value: JsonValue) -> str:
    """Return a value as an error shows it: shortened if it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _at(record: JsonObject, path: tuple[str, ...]) -> JsonValue:
    place = record
    for depth, key in enumerate(path[:-1], 1):
        inner = place.get(key)
        if not isinstance(inner, dict):
            raise unusable(path[:depth], "an object", inner)
        place = inner
    return place.get(path[-1])
