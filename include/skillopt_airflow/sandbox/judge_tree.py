"""The program that lays out a changed repository in the judge's container, before any code of it runs.

It only uses the standard library. Its folder contains order.json and the two changes.
"""

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TREE, WORK = Path("/opt/item/tree"), Path("/work")
NOT_APPLIED, TESTS_NOT_APPLIED = 3, 4
MAX_NAMED = 5


def main() -> None:
    order = json.loads((HERE / "order.json").read_text())
    subprocess.run(["cp", "-r", "--no-dereference", f"{TREE}/.", str(WORK)], check=False)
    before = stamps()
    if not apply("candidate.diff"):
        sys.exit(NOT_APPLIED)
    # Git may parse a header differently than the judge that checked it.
    others = {path for path, _ in before ^ stamps()} - set(order["touched"])
    if others:
        sys.stderr.write(f"the patch also changes {sorted(others)[:MAX_NAMED]}, which its headers do not name\n")
        sys.exit(NOT_APPLIED)
    for path in order["restored"]:
        restore(path)
    if order["has_test_patch"] and not apply("tests.diff"):
        sys.exit(TESTS_NOT_APPLIED)
    for path, content in order["added"].items():
        target = WORK / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")


def apply(name: str) -> bool:
    """Apply a change and return whether it fits; if not, git prints the reason."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": "/", "HOME": "/tmp"}  # noqa: S108
    for fitting in ([], ["--recount", "--ignore-whitespace", "-C1"]):
        command = ["git", "apply", "--whitespace=nowarn", *fitting, str(HERE / name)]
        if subprocess.run(command, cwd=WORK, env=env, check=False).returncode == 0:
            return True
    return False


def stamps() -> set[tuple[str, tuple[int, ...]]]:
    """Return the files of the work folder with inode, change time and size."""
    states = {path: path.lstat() for path in WORK.rglob("*")}
    return {
        (str(path.relative_to(WORK)), (state.st_ino, state.st_ctime_ns, state.st_size))
        for path, state in states.items()
        if not stat.S_ISDIR(state.st_mode)
    }


def restore(path: str) -> None:
    """Restore a file from the tree, after removing links and folders that a candidate put in its place."""
    target = WORK / path
    for place in [*reversed(target.parents), target]:
        if place != WORK and place.is_relative_to(WORK) and place.is_symlink():
            place.unlink()
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if (TREE / path).is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TREE / path, target)


if __name__ == "__main__":
    main()
