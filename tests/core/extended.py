"""A copy of the package with one file and one line more, as CONTRIBUTING describes an extension."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def output_of(script: str, folder: Path, module: str, source: str, registry: str, lines: dict[str, str]) -> str:
    """Run a script against a copy in an empty folder; `lines` are added to the registry, each after its key."""
    package = folder / "skillopt_airflow"
    shutil.copytree(PROJECT / "include" / "skillopt_airflow", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "project").symlink_to(PROJECT)
    (package / module).write_text(source, encoding="utf-8")
    text = (package / registry).read_text(encoding="utf-8")
    for before, line in lines.items():
        assert text.count(before) == 1
        text = text.replace(before, before + line)
    (package / registry).write_text(text, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": f"{folder}:{PROJECT}"}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
