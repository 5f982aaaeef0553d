"""Answers of the optimizer model, read leniently: limits on their text, and the wording of what was not taken."""

import json
from collections.abc import Iterable
from typing import get_origin

from pydantic import BaseModel, Field, model_validator

from skillopt_airflow.core.values.model_protocols import Optimizer
from skillopt_airflow.core.values.text import flaw_of_text, plain, visible
from skillopt_airflow.core.values.types import SEPARATOR
from skillopt_airflow.optimizer import prompts


class ModelAnswer(BaseModel):
    """An answer, or a part of one, as a model writes it.

    Asking again is paid with the whole prompt, so what is understood is no reason to: null where a field has a default,
    a list as a text that holds its JSON, line ends of Windows.
    """

    @model_validator(mode="before")
    @classmethod
    def _understood(cls, answer: object) -> object:
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
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, list) else value


MAX_SKILL_CHARS = 100_000
"""Characters that one answer may bring into a skill, far above any skill that a model could follow."""
MAX_MEMORY_CHARS = 20_000
"""Characters of the guidance of a slow update, and of the optimizer's memory: both are read at every call."""
MAX_SENTENCES_CHARS = 2_000
"""Characters of what is meant to be a sentence or two: a failure pattern, a note, a question, a reason."""
MAX_ENTRIES = 50
"""Failure patterns, notes or questions that are taken from one answer."""
_SHOWN_FLAWS = 5
_SHOWN_CHARACTERS = 300


def flaw_of(text: str, most: int) -> str:
    """Return the reason to refuse a text, or an empty string."""
    if not text.strip():
        return "is blank"
    return f"has {len(text):,} characters, {most:,} are allowed" if len(text) > most else flaw_of_text(text)


def flaw_of_note(text: str) -> str:
    """Return the reason to keep a text out of the appendix, or an empty string."""
    # Two harmless lines could make up a marker, half of it in each.
    return "opens a comment, as a region's marker does" if "<!--" in text else flaw_of(text, MAX_SENTENCES_CHARS)


def one_line(text: str) -> str:
    return " ".join(text.split())


def clipped(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Return the text on one line, without hidden characters, cut at `most` characters."""
    # The first cut spares the split of an answer of megabytes.
    line = visible(one_line(text[: 2 * most]))
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[: most - 1]}…"


def said(where: str, flaws: Iterable[str]) -> str:
    """Return the text of a fallback, `<where>: <flaw>, <flaw>`; empty without flaws."""
    found = list(flaws)
    shown = [clipped(flaw) for flaw in found[:_SHOWN_FLAWS]]
    if len(found) > len(shown):
        shown.append(f"and {len(found) - len(shown)} more")
    # What joins fallbacks must not occur inside one: people and the run's history count them by it.
    return f"{where}: {', '.join(shown)}".replace(SEPARATOR, ", ") if shown else ""


def joined(*fallbacks: str) -> str:
    return SEPARATOR.join(fallback for fallback in fallbacks if fallback)


class ReadyAnswer(ModelAnswer):
    """The answer of a preflight call."""

    ready: bool = Field(description="Always true.")


def check_answers(optimizer: Optimizer) -> None:
    """Ask for one structured answer; any that fits its schema will do.

    Raises:
        ModelOutputError: the answer stayed outside its schema.
        ModelError: there was none.
    """
    optimizer.ask("preflight", prompts.load("preflight"), "Are you ready?", ReadyAnswer)
