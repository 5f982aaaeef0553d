"""The repository of an item's own image: a writable copy for the target, and the difference that it leaves.

The history that the difference is taken against stays in the image, which nothing in the container can change.
"""

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from skillopt_airflow.core.repository_tests import MAX_PATCH_BYTES

ITEM = Path("/opt/item")
WORK = Path("/work")
SECONDS = 120
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Repository:
    """The folder that the target works in, and what it was copied from."""

    folder: Path
    item: Path

    @classmethod
    def opened(cls, item: Path = ITEM, work: Path = WORK) -> "Repository | None":
        """Return the copy, which is made now, of the image's repository; None if the image has none.

        Raises:
            OSError: it does not fit into the working folder.
        """
        if not (item / "tree").is_dir():
            return None
        for source, target in ((item / "tree", work), (item / "git", work / ".git")):
            target.mkdir(exist_ok=True)
            done = subprocess.run(
                ["cp", "-r", "--no-dereference", "--preserve=mode,timestamps", f"{source}/.", str(target)],
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
            # The folder itself is another user's, who alone may set its times.
            if not (target / ".").is_dir() or b"No space" in done.stderr:
                raise OSError(f"the repository does not fit into {work} (sandbox.output_mb): {done.stderr[-300:]!r}")
        return cls(work, item)

    def environment(self, home: str) -> dict[str, str]:
        """Return the variables of a command: the repository's own packages, and nothing of this program's."""
        roots = json.loads((self.item / "item.json").read_text())["import_roots"]
        return {
            "PATH": f"{self.item / 'venv' / 'bin'}:{SYSTEM_PATH}",
            "PYTHONPATH": ":".join(str(self.folder / root) for root in roots),
            "VIRTUAL_ENV": str(self.item / "venv"),
            "HOME": home,
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "GIT_PAGER": "cat",
            "PAGER": "cat",
        }

    def difference(self, room: Path) -> bytes:
        """Return the work as a diff by git, new files included; of a larger one than may count only its beginning.

        What git cannot take is left out, such as a repository that the target made in a folder of this one.

        Args:
            room: folder in which git's own files lie meanwhile.

        Raises:
            OSError: git fails, such as for want of space.
        """
        with tempfile.TemporaryDirectory(dir=room, ignore_cleanup_errors=True) as scratch:
            env = {
                "PATH": SYSTEM_PATH,
                "HOME": scratch,
                "GIT_DIR": str(self.item / "git"),
                "GIT_WORK_TREE": str(self.folder),
                "GIT_INDEX_FILE": str(Path(scratch, "index")),
                "GIT_OBJECT_DIRECTORY": str(Path(scratch, "objects")),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.item / "git" / "objects"),
            }
            Path(scratch, "objects").mkdir()
            self._git(["read-tree", "HEAD"], env)
            self._git(["add", "--all", "--ignore-errors"], env, left_out=1)
            options = ["--cached", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "HEAD"]
            with tempfile.TemporaryFile(dir=scratch) as out:
                self._git(["diff", *options], env, out.fileno())
                out.seek(0)
                return out.read(MAX_PATCH_BYTES + 1)

    def _git(self, command: list[str], env: dict[str, str], out: int = subprocess.DEVNULL, left_out: int = 0) -> None:
        """Run git; its exit status `left_out` says that it could not take everything."""
        done = subprocess.run(
            # A folder with a history of its own would be taken for a link to that.
            ["git", "-c", "core.quotePath=false", "-c", "advice.addEmbeddedRepo=false", *command],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
            timeout=SECONDS,
        )
        if done.returncode != 0 and (done.returncode != left_out or b"No space left" in done.stderr):
            raise OSError(f"git {command[0]}: {done.stderr.decode(errors='replace')[-300:].strip()}")
