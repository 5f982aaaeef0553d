"""The program that lays out a changed repository in the judge's container, before any code of it runs.

It is a program of the standard library alone, copied there; its folder holds order.json, the two changes as files, and
the files that are added. Its exit status says what went wrong.
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
    """Copy the tree, apply the candidate's change, put back what is the judge's, and apply the tests' change."""
    order = json.loads((HERE / "order.json").read_text())
    subprocess.run(["cp", "-r", "--no-dereference", f"{TREE}/.", str(WORK)], check=False)
    before = stamps()
    if not applied("candidate.diff"):
        sys.exit(NOT_APPLIED)
    # Git may read a header in another way than the judge that let it pass.
    others = {path for path, _ in before ^ stamps()} - set(order["touched"])
    if others:
        sys.stderr.write(f"the change is also of {sorted(others)[:MAX_NAMED]}, which its headers do not name\n")
        sys.exit(NOT_APPLIED)
    for path in order["restored"]:
        restore(path)
    if order["has_test_patch"] and not applied("tests.diff"):
        sys.exit(TESTS_NOT_APPLIED)
    for path, content in order["added"].items():
        target = WORK / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")


def applied(name: str) -> bool:
    """Apply a change, and return whether it fits; git says why not."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": "/", "HOME": "/tmp"}  # noqa: S108
    for fitting in ([], ["--recount", "--ignore-whitespace", "-C1"]):
        command = ["git", "apply", "--whitespace=nowarn", *fitting, str(HERE / name)]
        if subprocess.run(command, cwd=WORK, env=env, check=False).returncode == 0:
            return True
    return False


def stamps() -> set[tuple[str, tuple[int, ...]]]:
    """Return the files of the work folder, each with what changes when it is written anew."""
    states = {path: path.lstat() for path in WORK.rglob("*")}
    return {
        (str(path.relative_to(WORK)), (state.st_ino, state.st_ctime_ns, state.st_size))
        for path, state in states.items()
        if not stat.S_ISDIR(state.st_mode)
    }


def restore(path: str) -> None:
    """Put a file back to what the tree has; where a candidate put a link or a folder in its way, that goes first."""
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
