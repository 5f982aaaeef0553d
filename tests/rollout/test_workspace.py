"""Real programs in a workspace, most of them hostile."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skillopt_airflow.core.values.types import MAX_FILES
from skillopt_airflow.rollout.workspace import HALF, MAX_OUTPUT_BYTES, ItemFolders, Output, output_files

pytestmark = pytest.mark.slow


def run(code: str, folder: Path, timeout: float = 30.0) -> str:
    inputs, outputs = folder / "in", folder / "out"
    inputs.mkdir(exist_ok=True)
    outputs.mkdir(exist_ok=True)
    return asyncio.run(ItemFolders(inputs, outputs, timeout).run_python(code))


def runs(pid: int) -> bool:
    """Whether a process runs; one that is dead but not reaped by whoever has to does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def survives(pid: int) -> bool:
    """Whether a process runs on; a busy kernel ends one that was killed a moment later."""
    deadline = time.monotonic() + 10
    while runs(pid):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False


CLOSING = "import os, time\nprint('a')\nos.closerange(0, 999)\ntime.sleep(1)\nopen('later', 'w')\nos._exit(4)"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)", r"a\nb\n\n\[exit status 3\]"),
        ("", r"\[exit status 0\]"),
        ("import os; os.kill(0, 9)", r"\[killed by signal 9\]"),
        ("import os; os.write(1, bytes(range(256)))", r"(?s).*\[exit status 0\]"),
        ("print('Straße € \x00')", r"(?s).*\[exit status [01]\]"),
        ("print('\ud800')", r"(?s).*\[exit status [01]\]"),
        (CLOSING, r"a\n\n\[exit status 4\]"),
    ],
)
def test_output_and_ending_are_told(code: str, said: str, tmp_path: Path):
    assert re.fullmatch(said, run(code, tmp_path))
    assert (tmp_path / "out" / "later").exists() == (code == CLOSING)


def test_an_error_is_told_with_its_line(tmp_path: Path):
    said = run("x = 1\nprint(x / 0)", tmp_path)
    assert "line 2" in said
    assert "print(x / 0)" in said
    assert "ZeroDivisionError" in said
    assert said.endswith("[exit status 1]")


def test_the_folders_and_little_else_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    code = """
import os, sys
print(os.getcwd(), os.environ["INPUTS"], os.environ["OUTPUTS"], repr(sys.stdin.read()))
print(*sorted(os.environ))
open("made.txt", "w").write("x")
"""
    where, names, *_ = run(code, tmp_path).splitlines()

    inputs, outputs = str(tmp_path / "in"), str(tmp_path / "out")
    assert where == f"{outputs} {inputs} {outputs} ''"
    passed = {"PATH", "PYTHONPATH", "HOME", "LANG", "INPUTS", "OUTPUTS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
    assert set(names.split()) <= passed | {"OPENBLAS_NUM_THREADS", "LC_CTYPE"}
    assert output_files(outputs) == ("made.txt",)


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path):
    code = """
import os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid)
while True: time.sleep(1)
"""
    said = run(code, tmp_path, timeout=3.0)

    numbers, _, ending = said.split("\n")
    assert ending == "[killed: it was not done after 3 s]"
    assert not any(survives(int(number)) for number in numbers.split())


def test_a_fork_bomb_is_killed(tmp_path: Path):
    code = """
import os, time
# Only as many as the test's machine can bear; in a container sandbox.pids is the limit.
for _ in range(7): os.fork()
os.write(1, b"%d " % os.getpid())
while True: time.sleep(1)
"""
    numbers, _, ending = run(code, tmp_path, timeout=5.0).rpartition("\n")
    assert ending == "[killed: it was not done after 5 s]"
    assert len(numbers.split()) == 128
    assert not any(survives(int(number)) for number in numbers.split())


@pytest.mark.nightly
def test_what_is_left_running_ends_with_the_program_and_a_daemon_delays_nothing(tmp_path: Path):
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(1)
"""
    number, _, ending = run(code, tmp_path).split("\n")
    os.kill(int(number), 9)
    assert ending == "[exit status 0]"
    left = 'import subprocess; print(subprocess.Popen(["sleep", "600"]).pid)'
    number, _, ending = run(left, tmp_path).split("\n")
    assert ending == "[exit status 0]"
    assert not survives(int(number))


@pytest.mark.nightly
@pytest.mark.parametrize("stream", [1, 2])
def test_output_without_end_keeps_its_beginning_and_its_end(stream: int, tmp_path: Path):
    said = run(f"import os\nos.write({stream}, b'first ')\nwhile True: os.write({stream}, b'x' * 65536)", tmp_path, 2.0)

    assert said.startswith("first xxx")
    assert "bytes left out]" in said
    assert said.endswith("xxx\n[killed: it was not done after 2 s]")
    assert len(said) < MAX_OUTPUT_BYTES + 200


def test_a_workspace_that_is_gone(tmp_path: Path):
    folders = ItemFolders(tmp_path / "in", tmp_path / "none", 1.0)
    assert asyncio.run(folders.run_python("print(1)")).startswith("[the program could not be started: ")


def test_programs_run_beside_each_other(tmp_path: Path):
    async def main() -> list[str]:
        folders = ItemFolders(tmp_path, tmp_path, 30.0)
        meet = "import os, time\nopen('{0}', 'w')\nwhile not os.path.exists('{1}'): time.sleep(0.01)\nprint('{0}')"
        return await asyncio.gather(*(folders.run_python(meet.format(*names)) for names in ("ab", "ba")))

    assert asyncio.run(main()) == ["a\n\n[exit status 0]", "b\n\n[exit status 0]"]


def test_no_descriptor_is_left_open(tmp_path: Path):
    run("", tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for code in ("print(1)", "import time; time.sleep(60)"):
        run(code, tmp_path, timeout=1.0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_missing_is_counted():
    output = Output()
    for chunk in (b"a" * HALF, b"b" * 5, b"c" * HALF):
        output.add(chunk)
    assert output.text == "a" * HALF + "\n[5 bytes left out]\n" + "c" * HALF


def test_only_plain_files_with_plain_names_are_named(tmp_path: Path):
    for name in ("b.xlsx", "a.txt", ".hidden", "with blank", "x" * 101):
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    assert output_files(str(tmp_path)) == ("a.txt", "b.xlsx")
    assert output_files(str(tmp_path / "none")) == ()
    for number in range(MAX_FILES + 1):
        (tmp_path / f"n{number}").write_text("x")
    assert len(output_files(str(tmp_path))) == MAX_FILES


@pytest.mark.nightly
def test_a_containers_first_process_buries_what_a_fork_bomb_leaves(tmp_path: Path):
    code = """
import asyncio, os, pathlib, sys
from skillopt_airflow.rollout.workspace import ItemFolders
folder = pathlib.Path(sys.argv[1])
bomb = "import os, signal\\nfor _ in range(5): os.fork()\\nsignal.pause()"
said = asyncio.run(ItemFolders(folder, folder, 3.0).run_python(bomb))
print(said, os.getpid(), [name for name in os.listdir("/proc") if name.isdigit()])
"""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make a namespace")
    command = [*namespace, sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout == "[killed: it was not done after 3 s] 1 ['1']\n"
