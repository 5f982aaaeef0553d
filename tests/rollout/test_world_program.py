"""What the container's user can read of it is tested in tests/sandbox/test_escapes.py."""

import os
import subprocess
import sys
from pathlib import Path

HOLDER = """
import ctypes, sys
from pathlib import Path
from skillopt_airflow.rollout.world_program import take_sealed_files

PR_GET_DUMPABLE = 3
before = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE)
taken = take_sealed_files(Path(sys.argv[1]))
print(before, ctypes.CDLL(None).prctl(PR_GET_DUMPABLE), taken)
"""


def test_files_are_read_once_and_the_memory_that_holds_them_is_closed(tmp_path: Path):
    sealed = tmp_path / "sealed"
    for index in ("0", "1"):
        (sealed / index).mkdir(parents=True)
        (sealed / index / "game").write_text(f"goal {index}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    holder = [sys.executable, "-c", HOLDER, str(sealed)]
    done = subprocess.run(holder, env=environment, capture_output=True, text=True, check=True)
    before, after, taken = done.stdout.strip().split(" ", 2)
    assert (before, after) == ("1", "0")
    assert eval(taken) == {0: {"game": b"goal 0"}, 1: {"game": b"goal 1"}}
    assert not sealed.exists()
