"""The stand-in as optimizer, stage rewrite: suggestions worked into the skill's body."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from local.standin.chance import fraction
from local.standin.directives import recognise
from local.standin.proposing import body_of, repeated_lines
from local.standin.stage_request import StageRequest
from skillopt_airflow.core.edits import apply_edits
from skillopt_airflow.core.errors import ModelError, SkillError
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.types import Edit, EditOp

_TIDINESS = 0.4
"""Share of rewrites that take out what the body says twice."""


def rewrite(request: StageRequest) -> dict[str, Any]:
    """Return the body with all suggestions worked in, sometimes without the lines that repeat others."""
    body = worked_in(request.skill, (edit.model_dump() for edit in request.edits))
    return {"body": tidied(body) if fraction(request.skill, body, "tidy") < _TIDINESS else body}


def worked_in(skill: str, edits: Iterable[Mapping[str, Any]]) -> str:
    """Return the body after the edits; those that do not apply, or are of a whole text, are passed over.

    Raises:
        ModelError: the body has the marker of a region that does not begin in it.
    """
    wanted = [
        Edit(op=edit["op"], anchor=edit["anchor"], content=edit["content"])
        for edit in edits
        if edit["op"] in get_args(EditOp)
    ]
    try:
        document, _ = apply_edits(SkillDocument(body_of(skill)), wanted)
    except SkillError as error:
        raise ModelError(f"The request's <skill> section cannot be read: {error}") from error
    return document.text if document.text.endswith("\n") else f"{document.text}\n"


def tidied(body: str) -> str:
    """Drop the lines that ask for what an earlier one asks for, unless that would change what the body asks for."""
    repeated = repeated_lines(body)
    # From the end, so that of equal lines the first stays.
    lines = body.splitlines()[::-1]
    for line in repeated:
        lines.remove(line)
    shorter = "\n".join(lines[::-1]) + "\n"
    return shorter if recognise(shorter) == recognise(body) else body
