"""The pictures among an item's files."""

from collections.abc import Iterable

from skillopt_airflow.core.pictures import Pictures, is_picture, marked
from skillopt_airflow.core.protocols import Workspace


def item_pictures(texts: Iterable[str], workspace: Workspace) -> Pictures:
    """Read the item's pictures that the texts have marks of."""
    named = {name for text in texts for name in marked(text)}
    read = {name: workspace.read_input(name) for name in named.intersection(workspace.input_names())} if named else {}
    return {name: content for name, content in read.items() if is_picture(content)}
