"""Reading what a record must hold, with errors that name the field."""

from collections.abc import Sequence

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject

Step = str | int
"""One step of a path: a key, or a position in a list."""
MAX_SHOWN = 80
"""Characters of an unusable value that an error shows."""


class UnreadableRecord(JsonObject):
    """The place of a record that cannot be read: an empty record, and the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def text_at(record: JsonObject, *path: Step) -> str:
    """Return the text at a key, or at the end of a path.

    Raises:
        DataError: there is none, or it is blank; the message names the path.
    """
    value = _at(record, path)
    if not isinstance(value, str) or not value.strip():
        raise unusable(path, "a non-empty text", value)
    return value


def texts_at(record: JsonObject, *path: Step) -> list[str]:
    """Return the list of texts at a key, or at the end of a path.

    Raises:
        DataError: there is no list, it is empty, or one of its texts is blank; the message names the path.
    """
    value = _at(record, path)
    texts = [entry for entry in value if isinstance(entry, str) and entry.strip()] if isinstance(value, list) else []
    if not isinstance(value, list) or not texts or len(texts) < len(value):
        raise unusable(path, "a list of at least one non-empty text", value)
    return texts


def list_at(record: JsonObject, *path: Step) -> list[JsonValue]:
    """Return the list at a key, or at the end of a path.

    Raises:
        DataError: there is none, or it is empty; the message names the path.
    """
    value = _at(record, path)
    if not isinstance(value, list) or not value:
        raise unusable(path, "a list of at least one entry", value)
    return value


def whole_number_at(record: JsonObject, *path: Step) -> int:
    """Return the whole number at a key, or at the end of a path.

    Raises:
        DataError: there is none; the message names the path.
    """
    value = _at(record, path)
    if isinstance(value, bool) or not isinstance(value, int):
        raise unusable(path, "a number", value)
    return value


def identity_at(record: JsonObject, *path: Step) -> str:
    """Return the text or whole number that names a record, as a text.

    Raises:
        DataError: there is none; the message names the path.
    """
    value = _at(record, path)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise unusable(path, "a text or a whole number", value)
    return str(value)


def found_at(value: JsonValue, key: str) -> JsonValue:
    """Return the value at a key of a record or, where it lacks the key, at a path such as `question.choices`.

    A path through a list, such as `answers.text`, gives the list of what its entries have. None if there is nothing.
    """
    if isinstance(value, list):
        return [found_at(entry, key) for entry in value]
    if not isinstance(value, dict) or key in value:
        return value.get(key) if isinstance(value, dict) else None
    first, point, rest = key.partition(".")
    return found_at(value.get(first), rest) if point else None


def task_types(record: JsonObject, key: str) -> tuple[str, ...]:
    """Return the types of a record in alphabetical order: the text or number at the key, or a list of these.

    The key may be a path, see `found_at`. There is none where it leads to nothing that can name one.
    """
    value = found_at(record, key)
    named = {str(one).strip() for one in (value if isinstance(value, list) else [value]) if isinstance(one, str | int)}
    return tuple(sorted(named - {""}))


def without(record: JsonObject, key: str) -> JsonObject:
    """Return a record without what `found_at` finds in it."""

    def inside(value: JsonValue, rest: str) -> JsonValue:
        if isinstance(value, list):
            return [inside(entry, rest) for entry in value]
        return without(value, rest) if isinstance(value, dict) else value

    first, point, rest = key.partition(".")
    if key in record or not point or first not in record:
        return {column: value for column, value in record.items() if column != key}
    return record | {first: inside(record[first], rest)}


def unusable(path: Sequence[Step], expected: str, value: JsonValue) -> DataError:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return DataError(f"{steps.removeprefix('.')}: expected {expected}, got {shown(value)}")


def shown(value: JsonValue) -> str:
    """Return a value as an error shows it: shortened if it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _at(record: JsonObject, path: Sequence[Step]) -> JsonValue:
    """Return what stands at the end of a path, or None if only its last key is missing."""
    value: JsonValue = record
    for depth, step in enumerate(path):
        if isinstance(step, int):
            value = list_at(record, *path[:depth])[step]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            raise unusable(path[:depth], "an object", value)
    return value
