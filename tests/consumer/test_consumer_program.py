import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from skillopt_airflow.consumer import OutputError, Skill, install
from skillopt_airflow.store.objects import ObjectStore
from tests.consumer.conftest import KEYS, Command, Publish, run
from tests.store.conftest import free_port

SKILL = "# Skill\r\n\n- é: leave out words\n"
BETTER = "- better\n"

TOLD_WHILE_LOCKED = """
import os, signal, sys, threading
from skillopt_airflow import consumer

wait = threading.Condition.wait

def told(condition, timeout=None):
    if timeout == 0.25:
        os.kill(os.getpid(), signal.SIGTERM)
    return wait(condition, timeout)

threading.Condition.wait = told
sys.exit(consumer.main(sys.argv[1:]))
"""
"""Watches with a signal that comes when the lock of the event that it waits for is held."""


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.nightly
def test_fetch_writes_a_whole_folder_then_the_next(publish: Publish, command: Command, tmp_path: Path) -> None:
    out, words = tmp_path / "skill", command()
    first = publish(SKILL)
    done = run(words)
    assert (done.returncode, done.stderr) == (0, "")
    assert (out / "best_skill.md").read_bytes() == SKILL.encode()
    assert yaml.safe_load((out / "skill.json").read_text())["version"] == first.version
    assert out.resolve().stat().st_mode & 0o777 == 0o755
    place = out.resolve()
    assert run(words).returncode == 0
    assert out.resolve() == place
    publish(BETTER)
    assert run(words).returncode == 0
    assert (out / "best_skill.md").read_text() == BETTER
    # Whoever still reads the old folder has it until the next but one.
    assert (place / "best_skill.md").read_bytes() == SKILL.encode()
    publish("- third\n")
    assert run(words).returncode == 0
    assert not place.exists()


@pytest.mark.nightly
def test_exit_codes(publish: Publish, store: ObjectStore, command: Command, tmp_path: Path) -> None:
    out, words = tmp_path / "skill", command()
    assert run(words).returncode == 6
    assert run(command("--endpoint-url", f"http://127.0.0.1:{free_port()}")).returncode == 3
    assert run(command("--alias", "../x")).returncode == run(command("--watch", "-1")).returncode == 2
    published = publish(SKILL)
    store.put_text(KEYS.version(published.version).best_skill, "- tampered")
    refused = run(words)
    assert refused.returncode == 4
    assert "refused" in refused.stderr
    assert not out.exists()
    store.put_bytes(KEYS.version(published.version).best_skill, SKILL.encode())
    assert run(words).returncode == 0
    store.put_text(KEYS.version(publish(BETTER).version).best_skill, "- tampered")
    kept = run(words)
    assert kept.returncode == 0
    assert "last good skill" in kept.stderr
    assert (out / "best_skill.md").read_bytes() == SKILL.encode()
    (tmp_path / "folder" / "mine").mkdir(parents=True)
    assert run(command("--out", f"{tmp_path}/folder")).returncode == 5
    assert (tmp_path / "folder" / "mine").is_dir()


def test_what_another_program_has_there_stays(tmp_path: Path) -> None:
    file, dead, link = (tmp_path / name for name in ("file", "dead", "link"))
    file.write_text("mine")
    dead.symlink_to(tmp_path / "nowhere")
    link.symlink_to(tmp_path)
    for out in (file, dead, link):
        with pytest.raises(OutputError, match=out.name):
            install(Skill("", "v0001-0123456789ab", "", 0, "", ""), out, {"best_skill.md": SKILL})
    assert file.read_text() == "mine"
    assert (dead.readlink(), link.readlink()) == (tmp_path / "nowhere", tmp_path)


@pytest.mark.nightly
def test_watch_switches_whole_folders_under_a_reader(publish: Publish, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "skill"
    publish("- rule 0\n")
    with subprocess.Popen(
        command("--watch", "0.02"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as watching:
        try:
            eventually(out.exists)
            torn, stop = [], threading.Event()

            def read() -> None:
                while not stop.is_set():
                    # One look at the link, as a reader that opens the folder does.
                    folder = os.open(out, os.O_RDONLY)
                    names = set(os.listdir(folder))  # noqa: PTH208
                    os.close(folder)
                    if names not in ({"SKILL.md", "best_skill.md", "skill.json"}, set()):
                        torn.append(names)

            reader = threading.Thread(target=read)
            reader.start()
            for number in range(1, 6):
                text = f"- rule {number}\n"
                publish(text)
                eventually(lambda text=text: (out / "best_skill.md").read_text() == text)
            stop.set()
            reader.join()
            watching.send_signal(signal.SIGTERM)
            said, errors = watching.communicate(timeout=30)
        finally:
            watching.kill()
    assert watching.returncode == 0
    assert errors == ""
    assert len(said.splitlines()) == 6
    assert torn == []


@pytest.mark.nightly
def test_watch_ends_by_a_signal_at_the_worst_moment(publish: Publish, command: Command) -> None:
    publish(SKILL)
    [_, _, *words] = command("--watch", "0.25")
    code = [sys.executable, "-c", TOLD_WHILE_LOCKED, *words]
    assert subprocess.run(code, env=os.environ, timeout=30, check=False).returncode == 0


@pytest.mark.nightly
def test_processes_install_into_one_folder(publish: Publish, command: Command, tmp_path: Path) -> None:
    publish(SKILL)
    words = command("--out", f"{tmp_path}/search-qa")
    running = [subprocess.Popen(words, env=os.environ, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert (tmp_path / "search-qa" / "best_skill.md").read_bytes() == SKILL.encode()
    folders = [path for path in (tmp_path / ".search-qa.versions").iterdir() if path.is_dir()]
    assert len(folders) == 1
