"""Answers of the optimizer model, read as leniently as any reader would."""

import json
from typing import get_origin

from pydantic import BaseModel, model_validator

from skillopt_airflow.core.hidden_text import plain


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
