"""Known vulnerabilities of the locked packages, by pip-audit."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SERVICE = ["--vulnerability-service", "osv"]
VULNERABLE = 1
NOT_AUDITED = 3


def locks(root: Path) -> list[Path]:
    """Return the locks of the project: of production, the local platform, the images and the example."""
    return sorted(path for folder in (".", "docker", "examples") for path in (root / folder).glob("*requirements*.txt"))


def run(root: Path, ignored: Sequence[str] = ()) -> int:
    """Print the known vulnerabilities of all locks, as this Python reads them.

    Args:
        root: the project's folder.
        ignored: IDs of vulnerabilities to leave out.

    Returns:
        0 if there are none, VULNERABLE, or NOT_AUDITED if pip-audit can't ask the service or read a lock.
    """
    options = [word for one in ignored for word in ("--ignore-vuln", one)]
    options += [word for lock in locks(root) for word in ("--requirement", str(lock))]
    command = [sys.executable, "-m", "pip_audit", *SERVICE, "--disable-pip", "--progress-spinner", "off", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # pip-audit returns 1 in both cases, but prints a table only if it finds something.
    if done.returncode != 0 and not done.stdout:
        reason = done.stderr.strip().rpartition("\n")[2][:500]
        print(f"error: nothing was audited: {reason}\nRun `make audit` where https://osv.dev answers.", file=sys.stderr)
        return NOT_AUDITED
    print(f"{done.stderr}{done.stdout}", end="")
    return VULNERABLE if done.returncode else 0
