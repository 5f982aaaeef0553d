"""The instructions of the optimizer's calls, one Markdown file per stage."""

from importlib.resources import files


def load(stage: str) -> str:
    return files(__name__).joinpath(f"{stage}.md").read_text(encoding="utf-8")
