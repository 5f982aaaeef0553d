"""The instructions of the optimizer's calls, one Markdown file a stage."""

from importlib.resources import files


def load(stage: str) -> str:
    """Return the instructions of a stage, which are in the file of its name beside this one."""
    return files(__name__).joinpath(f"{stage}.md").read_text(encoding="utf-8")
