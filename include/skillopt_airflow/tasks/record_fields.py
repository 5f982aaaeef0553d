"""Typed access to the fields of a record, with errors that name the field."""

from collections.abc import Sequence

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject

Step = str | int
"""One step of a path: a key, or a position in a list."""
MAX_SHOWN = 80


class UnreadableRecord(JsonObject):
    """An empty record in place of one that can't be read, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def text_at(record: JsonObject, *path: Step) -> str:
    """Return the non-blank string at a path; raise DataError, which names the path, if there is none."""
    value = _at(record, path)
    if not isinstance(value, str) or not value.strip():
        raise field_error(path, "a non-empty string", value)
    return value


def texts_at(record: JsonObject, *path: Step) -> list[str]:
    """Like `text_at`, for a non-empty list of non-blank strings."""
    value = _at(record, path)
    texts = [entry for entry in value if isinstance(entry, str) and entry.strip()] if isinstance(value, list) else []
    if not texts or texts != value:
        raise field_error(path, "a list of at least one non-empty string", value)
    return texts


def list_at(record: JsonObject, *path: Step) -> list[JsonValue]:
    """Like `text_at`, for a non-empty list."""
    value = _at(record, path)
    if not isinstance(value, list) or not value:
        raise field_error(path, "a list of at least one entry", value)
    return value


def whole_number_at(record: JsonObject, *path: Step) -> int:
    """Like `text_at`, for an integer."""
    value = _at(record, path)
    if isinstance(value, bool) or not isinstance(value, int):
        raise field_error(path, "an integer", value)
    return value


def identity_at(record: JsonObject, *path: Step) -> str:
    """Like `text_at`, for the string or integer that identifies a record; return it as a string."""
    return name_of(_at(record, path), *path)


def name_of(value: JsonValue, *path: Step) -> str:
    """Return the non-blank string or integer as a string; raise DataError, which names the path, for other values."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise field_error(path, "a non-empty string or an integer", value)
    return str(value)


def value_at(value: JsonValue, key: str) -> JsonValue:
    """Return the value at a key of a record or, if it lacks the key, at a path such as `question.choices`.

    A path through a list, such as `answers.text`, gives a list with one value per entry. None if nothing is there.
    """
    if isinstance(value, list):
        return [value_at(entry, key) for entry in value]
    if not isinstance(value, dict) or key in value:
        return value.get(key) if isinstance(value, dict) else None
    first, point, rest = key.partition(".")
    return value_at(value.get(first), rest) if point else None


def task_types(record: JsonObject, key: str) -> tuple[str, ...]:
    """Return the sorted types of a record: the string or integer at the key or path (see `value_at`), or a list."""
    value = value_at(record, key)
    named = {str(one).strip() for one in (value if isinstance(value, list) else [value]) if isinstance(one, str | int)}
    return tuple(sorted(named - {""}))


def without(record: JsonObject, key: str) -> JsonObject:
    """Return a copy of the record without the value that `value_at` returns."""

    def inside(value: JsonValue, rest: str) -> JsonValue:
        if isinstance(value, list):
            return [inside(entry, rest) for entry in value]
        return without(value, rest) if isinstance(value, dict) else value

    first, point, rest = key.partition(".")
    if key in record or not point or first not in record:
        return {column: value for column, value in record.items() if column != key}
    return record | {first: inside(record[first], rest)}


def field_error(path: Sequence[Step], expected: str, value: JsonValue) -> DataError:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return DataError(f"{steps.removeprefix('.')}: expected {expected}, got {short_repr(value)}")


def short_repr(value: JsonValue) -> str:
    """Return the value's repr for an error, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _at(record: JsonObject, path: Sequence[Step]) -> JsonValue:
    """Return the value at a path, or None if only its last key is missing."""
    value: JsonValue = record
    for depth, step in enumerate(path):
        if isinstance(step, int):
            value = list_at(record, *path[:depth])[step]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            raise field_error(path[:depth], "an object", value)
    return value
