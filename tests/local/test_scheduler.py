import subprocess
import sys
from pathlib import Path

import pytest

from local.home import PROJECT

FORKING = """
import os, sys, time
from pathlib import Path

from local.scheduler import reimport_in_children

package = Path(sys.argv[1])
sys.path.insert(0, str(package.parent))
reimport_in_children(package)
import edited.part

if sys.argv[2] == "edit":
    (package / "part.py").write_text("VALUE = 'new'")
    os.utime(package / "part.py", (time.time() + 9, time.time() + 9))
child = os.fork()
if child == 0:
    was_there = "edited.part" in sys.modules
    import edited.part
    os.write(1, f"{was_there} {edited.part.VALUE}".encode())
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("does", "seen"), [("edit", "False new"), ("nothing", "True old")])
def test_an_edit_reaches_the_next_task(tmp_path: Path, does: str, seen: str) -> None:
    package = tmp_path / "edited"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("VALUE = 'old'")
    done = subprocess.run(
        [sys.executable, "-B", "-c", FORKING, package, does], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout == seen
