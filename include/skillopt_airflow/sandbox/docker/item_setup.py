"""The program that lays out tree, history and packages in the container from which an item's image is made.

It only uses the standard library, and is copied there with the tree and the packages. The history has one commit, so
that a target can't look up later ones.
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
"""File that a login shell reads after it resets PATH; codex runs commands in login shells."""
SCRIPT = """#!{python}
import sys
from {module} import {name}
sys.exit({call}())
"""


def main() -> None:
    if shutil.which("git") is None:
        sys.exit(
            "the sandbox image has no git, because Debian's mirror did not respond during its build. Remove the image "
            "and build it again with `make up`, or add Debian's package git to your own image."
        )
    order = json.loads((HERE / "item.json").read_text())
    TREE.parent.mkdir(parents=True)
    if order["folder"]:
        adopt(Path(order["folder"]))
        VENV.symlink_to(order["environment"])
    else:
        TREE.mkdir()
        # tar creates links to the outside last, so it writes nothing through them.
        subprocess.run(["tar", "-xzf", str(HERE / "repo.tar.gz"), "--no-same-owner", "-C", str(TREE)], check=True)
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


def adopt(folder: Path) -> None:
    """Move a folder to the tree, and link its old path to the work folder.

    Packages that are installed in place, and programs that were built there, keep using the old path.
    """
    shutil.move(folder, TREE)
    folder.symlink_to(WORK)


def record() -> None:
    """Create the commit that the target's work is compared with."""
    Path("/etc/gitconfig").write_text(GIT_CONFIG)
    env = {**os.environ, "GIT_DIR": str(GIT), "GIT_WORK_TREE": str(TREE)}
    env |= {"GIT_AUTHOR_DATE": AUTHORED, "GIT_COMMITTER_DATE": AUTHORED}
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        # Ignored files are a part of the tree as well.
        ["add", "--all", "--force"],
        ["commit", "--quiet", "--allow-empty", "--no-verify", "--message=base"],
        ["repack", "-adq"],
        ["config", "core.bare", "false"],
        # The history is copied to the target's work folder.
        ["config", "--unset", "core.worktree"],
    ):
        subprocess.run(["git", *command], cwd=TREE, env=env, check=True)
    shutil.rmtree(GIT / "hooks", ignore_errors=True)


def environment() -> None:
    """Create the packages' virtual environment with their commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], check=True)
    (target,) = (VENV / "lib").glob("python*/site-packages")
    for path in (HERE / "packages").iterdir():
        if path.name != "bin":
            shutil.move(path, target / path.name)
    for scripts in target.glob("*.dist-info/entry_points.txt"):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        setattr(parser, "optionxform", str)  # noqa: B010 - command names are case-sensitive
        parser.read(scripts)
        for name, place in parser["console_scripts"].items() if "console_scripts" in parser else ():
            module, _, call = place.partition("[")[0].strip().partition(":")
            text = SCRIPT.format(python=VENV / "bin" / "python", module=module, name=call.partition(".")[0], call=call)
            (VENV / "bin" / name).write_text(text)
            (VENV / "bin" / name).chmod(0o755)
    compileall.compile_dir(target, quiet=2, workers=0)


if __name__ == "__main__":
    main()
