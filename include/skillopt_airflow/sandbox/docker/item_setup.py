"""The program that runs in a container from which an item's image is made: it lays out tree, history, packages.

It is a program of the standard library alone, copied there with the tree and the packages that it finds beside itself.
The history has one commit, so that nothing of what came later can be looked up.
"""

import compileall
import configparser
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ITEM = Path("/opt/item")
TREE, GIT, VENV = ITEM / "tree", ITEM / "git", ITEM / "venv"
WORK = "/work"
GIT_CONFIG = """[safe]
	directory = *
[user]
	name = skillopt
	email = skillopt@localhost
[gc]
	auto = 0
[core]
	fsmonitor = false
"""
AUTHORED = "2000-01-01T00:00:00+00:00"
PROFILE = Path("/etc/profile.d/item.sh")
"""What a login shell reads after it has set a path of its own; codex runs commands in one."""
SCRIPT = """#!{python}
import sys
from {module} import {name}
sys.exit({call}())
"""


def main() -> None:
    """Lay out everything, and remove what it was made from."""
    if shutil.which("git") is None:
        sys.exit(
            "the sandbox image has no git, because Debian's mirror did not answer when it was built: remove the image "
            "and build it anew with `make up`, or add Debian's package git to your own"
        )
    order = json.loads((HERE / "item.json").read_text())
    TREE.parent.mkdir(parents=True)
    if order["folder"]:
        adopt(Path(order["folder"]))
        VENV.symlink_to(order["environment"])
    else:
        unpack()
        environment()
    for path in sorted(TREE.rglob(".git")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    record()
    PROFILE.parent.mkdir(parents=True, exist_ok=True)
    PROFILE.write_text(f'PATH="{VENV}/bin:$PATH"\n')
    shutil.copyfile(HERE / "item.json", ITEM / "item.json")
    for path in [ITEM, *TREE.rglob("*")]:
        if not path.is_symlink():
            path.chmod(
                path.stat().st_mode | stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH | (0o111 if path.is_dir() else 0)
            )
    shutil.rmtree(HERE)


def unpack() -> None:
    TREE.mkdir()
    # It makes links that lead out last, so that nothing is written through them.
    subprocess.run(["tar", "-xzf", str(HERE / "repo.tar.gz"), "--no-same-owner", "-C", str(TREE)], check=True)


def adopt(folder: Path) -> None:
    """Make the tree of a folder, which leads to the copy that is worked in from now on.

    Packages that are installed in place are imported from that folder, and programs built in it find each other there.
    """
    shutil.move(folder, TREE)
    folder.symlink_to(WORK)


def record() -> None:
    """Make the one commit that the target's work is compared with."""
    Path("/etc/gitconfig").write_text(GIT_CONFIG)
    env = {**os.environ, "GIT_DIR": str(GIT), "GIT_WORK_TREE": str(TREE)}
    env |= {"GIT_AUTHOR_DATE": AUTHORED, "GIT_COMMITTER_DATE": AUTHORED}
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        # What .gitignore names is a part of the tree as well.
        ["add", "--all", "--force"],
        ["commit", "--quiet", "--allow-empty", "--no-verify", "--message=base"],
        ["repack", "-adq"],
        ["config", "core.bare", "false"],
        # The history is copied to where the target works, and belongs to the files there.
        ["config", "--unset", "core.worktree"],
    ):
        subprocess.run(["git", *command], cwd=TREE, env=env, check=True)
    shutil.rmtree(GIT / "hooks", ignore_errors=True)


def environment() -> None:
    """Make the environment of the packages, and the commands that they bring."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], check=True)
    (target,) = (VENV / "lib").glob("python*/site-packages")
    for path in (HERE / "packages").iterdir():
        if path.name != "bin":
            shutil.move(path, target / path.name)
    for scripts in target.glob("*.dist-info/entry_points.txt"):
        found = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        setattr(found, "optionxform", str)  # noqa: B010 - names of commands keep their capitals
        found.read(scripts)
        for name, place in found["console_scripts"].items() if "console_scripts" in found else ():
            module, _, call = place.partition("[")[0].strip().partition(":")
            text = SCRIPT.format(python=VENV / "bin" / "python", module=module, name=call.partition(".")[0], call=call)
            (VENV / "bin" / name).write_text(text)
            (VENV / "bin" / name).chmod(0o755)
    compileall.compile_dir(target, quiet=2, workers=0)


if __name__ == "__main__":
    main()
