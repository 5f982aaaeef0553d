"""The instructions of the optimizer's calls, one Markdown file a stage."""

from importlib.resources import files


def load(stage: str) -> str:
    """The instructions of a stage, by its name: that of a file beside this one."""
    return files(__name__).joinpath(f"{stage}.md").read_text(encoding="utf-8")
