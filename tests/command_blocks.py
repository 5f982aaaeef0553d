"""The command blocks of README and docs/: what a user is told to type, and which of it is not run here."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SECONDS = 300
"""The longest that a block may take."""
PROGRAMS = (".local/bin/airflow ", ".local/bin/python ")
"""What `make up` leaves; a block of these alone is run as it stands, see test_readme_platform.py."""
NOT_RUN = (
    ("README.md", "make demo", "`make test` is what these tests are part of, and the demo's training is one of theirs"),
    ("README.md", "cp -r", "copies files into the project; test_recipe_platform.py types it and removes them"),
    ("README.md", ".local/bin/airflow dags trigger train_capitals", "test_recipe_platform.py types it after the copy"),
    ("README.md", ".local/bin/python include/skillopt_airflow/consumer.py", "test_recipe_platform.py, as above"),
    ("README.md", "export", "a provider's key; test_readme.py follows the connections to their models"),
    ("docs/consumption.md", "python consumer.py fetch", "never ends; tests/consumer/test_consumer.py ends it"),
    ("docs/gateway.md", "python -m", "has a gateway's machine to itself; tests/gateway/test_serve.py runs the program"),
    ("docs/hosts.md", "make image", "images of minutes, and a registry's; tests/test_compose.py starts it"),
    ("docs/hosts.md", "make up", "the platform on three hosts; `make cluster-tests` starts it"),
    ("docs/hosts.md", "airflow pools set", "a pool that limits what other trainings do"),
    ("docs/kubernetes.md", "python -m", "a cluster; tests/sandbox/kubernetes/test_pod.py runs it up to the pipe"),
    ("docs/kubernetes.md", "kubectl", "a cluster"),
    ("docs/kubernetes.md", "make image", "a registry; tests/local/test_airflow_image.py builds it on another base"),
    ("docs/real_model.md", "export", "keys and an account; test_readme.py follows the connections to their models"),
    ("docs/providers.md", "export", "providers' keys; tests/models/test_providers_page.py creates the connections"),
    ("docs/storage.md", "export", "an account; tests/store/test_s3_compatible.py has stores with these settings"),
    ("docs/publishing.md", "export", "someone's address; test_docs.py follows the connection to it"),
)
"""Blocks that cannot be run here: the page, the beginning, and why, or what is run in their place."""


@dataclass(frozen=True)
class Block:
    """One block, as it stands on its page."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"

    @property
    def commands(self) -> list[str]:
        """Its lines, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (re.sub(r"(^|\s)# .*", "", line).strip() for line in lines) if line]

    @property
    def reasons(self) -> list[str]:
        """Why it isn't run, from the list."""
        return [why for page, beginning, why in NOT_RUN if page == self.page and self.text.startswith(beginning)]

    @property
    def is_run(self) -> bool:
        """Whether it is run as it stands."""
        return not self.reasons and all(command.startswith(PROGRAMS) for command in self.commands)


def blocks(path: Path) -> list[Block]:
    """The blocks of a page, also those in a list."""
    found = re.findall(r"^( *)```console\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    page = str(path.relative_to(PROJECT))
    return [Block(page, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, text in found]


def typed(text: str, folder: Path) -> None:
    """Have a shell run it as a user does, who has nothing of the platform in the environment."""
    foreign = ("AIRFLOW", "AWS", "PYTHONPATH", "SKILLOPT")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(
        ["sh", "-e", "-c", text], cwd=folder, env=outer, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr


BLOCKS = [block for path in [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))] for block in blocks(path)]
