"""Texts of a trajectory, and the pictures that they have marks of."""

from collections.abc import Iterable

from skillopt_airflow.core.pictures import Pictures, is_picture, marked
from skillopt_airflow.core.protocols import Workspace
from skillopt_airflow.core.types import Status

MAX_ERROR_CHARS = 500
REFUSALS = {402: Status.BUDGET, 408: Status.TIMEOUT, 504: Status.TIMEOUT}
"""Meaning of the gateway's HTTP statuses; any other is a model_error."""


def reason(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR_CHARS]


def item_pictures(texts: Iterable[str], workspace: Workspace) -> Pictures:
    named = {name for text in texts for name in marked(text)}
    read = {name: workspace.read_input(name) for name in named.intersection(workspace.input_names())} if named else {}
    return {name: content for name, content in read.items() if is_picture(content)}
