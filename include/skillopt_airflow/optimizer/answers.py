"""Parsing the optimizer model's answers leniently, their limits, and the wording of fallbacks."""

import json
from collections.abc import Iterable
from typing import get_origin

from pydantic import BaseModel, Field, model_validator

from skillopt_airflow.core.errors import ModelOutputError
from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.text import flaw_of_text, plain, visible
from skillopt_airflow.core.values.types import SEPARATOR
from skillopt_airflow.optimizer.sections import load_prompt


class ModelAnswer(BaseModel):
    """An answer, or a part of one, as a model writes it.

    Retries cost the whole prompt again, so harmless deviations are accepted: null for a field with a default, a list as
    a string with its JSON, Windows line ends.
    """

    @model_validator(mode="before")
    @classmethod
    def _normalized(cls, answer: object) -> object:
        if not isinstance(answer, dict):
            return answer
        fields = cls.model_fields
        return {
            name: _plain(_list_of(value) if name in fields and get_origin(fields[name].annotation) is list else value)
            for name, value in answer.items()
            if not (value is None and name in fields and not fields[name].is_required())
        }


def _plain(value: object) -> object:
    if isinstance(value, str):
        return plain(value)
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def _list_of(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, list) else value


MAX_SKILL_CHARS = 100_000
"""Limit of characters that one answer adds to a skill; no model could follow a skill of this length."""
MAX_MEMORY_CHARS = 20_000
"""Limit of a slow update's guidance and of the optimizer's memory, since every call includes them."""
MAX_SENTENCES_CHARS = 2_000
"""Limit of short texts, which should have a sentence or two: a failure pattern, a note, a question, a reason."""
MAX_ENTRIES = 50
"""Limit of failure patterns, notes or questions per answer."""
_SHOWN_FLAWS = 5
_SHOWN_CHARACTERS = 300


def flaw_of(text: str, most: int) -> str:
    """Return the reason to refuse a text, or an empty string."""
    if not text.strip():
        return "is blank"
    return f"has {len(text):,} characters, {most:,} are allowed" if len(text) > most else flaw_of_text(text)


def check_text(what: str, text: str, most: int) -> None:
    """Raise ModelOutputError, which names `what`, if an answer's text isn't usable."""
    if flaw := flaw_of(text, most):
        raise ModelOutputError(f"{what} {flaw}")


def flaw_of_note(text: str) -> str:
    """Return the reason to keep a text out of the appendix, or an empty string."""
    # Two harmless lines could form a marker together.
    return "opens a comment, as a region's marker does" if "<!--" in text else flaw_of(text, MAX_SENTENCES_CHARS)


def one_line(text: str) -> str:
    return " ".join(text.split())


def clipped(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Return the text on one line, without hidden characters, cut at `most` characters."""
    # Cutting first avoids splitting megabytes.
    line = visible(one_line(text[: 2 * most]))
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[: most - 1]}…"


def fallback_text(where: str, flaws: Iterable[str]) -> str:
    """Return the text of a fallback, `<where>: <flaw>, <flaw>`; empty without flaws."""
    all_flaws = list(flaws)
    shown = [clipped(flaw) for flaw in all_flaws[:_SHOWN_FLAWS]]
    if len(all_flaws) > len(shown):
        shown.append(f"and {len(all_flaws) - len(shown)} more")
    # A fallback can't contain the separator, because the run's history counts fallbacks by it.
    return f"{where}: {', '.join(shown)}".replace(SEPARATOR, ", ") if shown else ""


def join_fallbacks(*fallbacks: str) -> str:
    return SEPARATOR.join(fallback for fallback in fallbacks if fallback)


class ReadyAnswer(ModelAnswer):
    """The answer of a preflight call."""

    ready: bool = Field(description="Always true.")


def check_answers(optimizer: Optimizer) -> None:
    """Ask for one structured answer. Raises ModelError without any, and ModelOutputError if none fits its schema."""
    optimizer.ask("preflight", load_prompt("preflight"), "Are you ready?", ReadyAnswer)
