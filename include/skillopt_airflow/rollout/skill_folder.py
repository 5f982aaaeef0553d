"""The skill folder that agent CLIs expect: a SKILL.md whose front matter says when to use it."""

import json
from pathlib import Path

from skillopt_airflow.core.skill import skill_name


def install(skills: Path, benchmark: str, text: str) -> None:
    """Write the skill below a CLI's folder of skills."""
    name = skill_name(benchmark)
    folder = skills / name
    folder.mkdir(parents=True)
    # A JSON string is a YAML string too, whatever is in it.
    description = json.dumps(f"How to do the {benchmark} benchmark's items. Use it for each of them.")
    matter = f"name: {name}\ndescription: {description}\n"
    (folder / "SKILL.md").write_text(f"---\n{matter}---\n\n{text}", encoding="utf-8")
