"""The README's way from a table to a trained skill, its commands run as they stand there."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.run.history import History
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

PROJECT = Path(__file__).resolve().parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Train on your own CSV\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
SECONDS = 300


@pytest.fixture
def checkout(platform: Any, tmp_path: Path) -> Iterator[Path]:
    """A folder like the README's, with the state of the tests' platform; what is copied into it is removed again."""
    made = (PROJECT / "benchmarks" / "capitals", PROJECT / "skills" / "capitals")
    assert not any(folder.exists() for folder in made)
    for name in ("benchmarks", "examples", "include", "skills"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / ".local").symlink_to(platform.home.root)
    yield tmp_path
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


def typed(command: str, folder: Path) -> None:
    """Have a shell run it as a user does, who has nothing of the platform in the environment."""
    foreign = ("AIRFLOW", "AWS", "PYTHONPATH", "SKILLOPT")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=outer, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_from_a_table_to_a_trained_skill(platform: Any, checkout: Path) -> None:
    [copy, copy_skill, up, read], [trigger], [fetch] = (block.splitlines() for block in BLOCKS)
    typed(copy, checkout)
    typed(copy_skill, checkout)
    # The platform that `make up` starts runs already.
    assert up == "make up"
    typed(read, checkout)
    typed(trigger, checkout)
    run, *_ = platform.api.runs("train_capitals")
    assert platform.api.wait("train_capitals", run["dag_run_id"], seconds=SECONDS) == "success"
    keys = RunKeys("", "capitals", run_name(run["dag_run_id"]))
    history = ObjectStore(platform.s3, "skillopt").get_model(keys.history, History)
    # A platform that kept the champion of an earlier session publishes no equal one; `fetch` gets that one then.
    assert history.best.score > history.seed.score
    typed(fetch, checkout)
    trained = (platform.home.root / "capitals" / "best_skill.md").read_text(encoding="utf-8")
    seed = (PROJECT / "examples" / "capitals" / "skill" / "initial.md").read_text(encoding="utf-8")
    assert len(trained.splitlines()) > len(seed.splitlines())
