import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from local.standin.economy import World
from local.standin.known_items import of_benchmark
from skillopt_airflow.consumer import OutputError, Skill, install
from skillopt_airflow.store.objects import ObjectStore
from tests.consumer.conftest import BENCHMARK, CONSUMER, KEYS, PREFIX, PROJECT, TARGET, Command, Publish, run
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


EXAMPLES = PROJECT / "examples"
RULE = "- Leave out words of the question.\n"


@pytest.fixture(autouse=True)
def endpoint(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)


def placed(words: list[str], bucket: str, root: Path) -> list[str]:
    """A container's command for this machine: its files, this bucket, and what is published in it."""
    assert words[words.index("--benchmark") + 1] == "searchqa"
    names = {"python": sys.executable, "/app/consumer.py": str(CONSUMER), "skillopt-artifacts": bucket}
    names |= {"searchqa": BENCHMARK, "openai-chat:gpt-5-mini": TARGET}
    return [names.get(word, word.replace("/skill/", f"{root}/")) for word in words] + ["--prefix", PREFIX]


def without_watch(words: list[str]) -> list[str]:
    place = words.index("--watch")
    assert float(words[place + 1]) > 0
    return words[:place] + words[place + 2 :]


@pytest.mark.nightly
def test_the_kubernetes_and_the_compose_example(publish: Publish, store: ObjectStore, tmp_path: Path) -> None:
    deployment: Any = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    kubernetes_validate.validate(deployment, "1.33", strict=True)
    publish(RULE)
    pod = deployment["spec"]["template"]["spec"]
    start, sidecar = ([*one["command"], *one["args"]] for one in pod["initContainers"])
    assert run(placed(start, store.bucket, tmp_path)).returncode == 0
    assert (tmp_path / "current" / "best_skill.md").read_text() == RULE
    # The volume is mounted elsewhere in the application: the link has to be relative.
    shutil.move(tmp_path, elsewhere := tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    assert (elsewhere / "current" / "best_skill.md").read_text() == RULE
    assert without_watch(sidecar) == start
    # The compose example runs what the sidecar runs.
    services: Any = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    assert services["skill"]["command"] == pod["initContainers"][1]["args"]
    assert 'ENTRYPOINT ["python", "/app/consumer.py"]' in (EXAMPLES / "Dockerfile").read_text()
    assert pod["initContainers"][1]["command"] == ["python", "/app/consumer.py"]


@pytest.mark.nightly
def test_the_skills_folders(publish: Publish, store: ObjectStore, tmp_path: Path) -> None:
    # Claude Code would run the command, and put the prompt's first word in the place of the argument.
    written = RULE + "- !`rm -rf .` costs $1\n"
    version = publish(written).version
    words = [str(EXAMPLES / "skills_folder.sh"), str(CONSUMER), store.bucket, BENCHMARK, TARGET, "search-qa"]
    done = run([*words, "--prefix", PREFIX, "--cache", str(tmp_path / "cache")], cwd=tmp_path, PATH=path_of_python())
    assert (done.returncode, done.stderr) == (0, "")
    texts = {".claude": RULE + "- ! `rm -rf .` costs \\$1\n", ".agents": written}
    for folder, text in texts.items():
        skills = tmp_path / folder / "skills"
        [found] = skills.glob("[!.]*/SKILL.md")
        _, matter, body = found.read_text().split("---\n", 2)
        assert yaml.safe_load(matter)["name"] == found.parent.name == "search-qa"
        assert yaml.safe_load(matter)["metadata"] == {"version": version}
        assert body == f"\n{text}"
        # Codex follows a linked folder, not a linked SKILL.md.
        assert not found.is_symlink()
        assert [path.name for path in found.parent.iterdir()] == ["SKILL.md"]


def path_of_python() -> str:
    return f"{Path(sys.executable).parent}:/usr/bin:/bin"


@pytest.mark.nightly
def test_the_openai_example(publish: Publish, store: ObjectStore, standin_url: str, tmp_path: Path) -> None:
    known = next(one for one in of_benchmark("searchqa") if World().nature(one.item.id).rule)
    shutil.copy(CONSUMER, tmp_path)
    # The example has no prefix, as the default configuration.
    text = (EXAMPLES / "openai_call.py").read_text()
    (tmp_path / "openai_call.py").write_text(text.replace("target)\n", f'target, prefix="{PREFIX}")\n', 1))
    publish(f"# Skill\n\n- {World().nature(known.item.id).rule}\n")
    user = known.benchmark.messages(known.item.public, "")[-1]
    words = [sys.executable, "openai_call.py", store.bucket, BENCHMARK, TARGET, user.content]
    done = run(words, cwd=tmp_path, OPENAI_BASE_URL=standin_url, OPENAI_API_KEY="none", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    publish("# Nothing to say\n")
    plain = run(words, cwd=tmp_path, OPENAI_BASE_URL=standin_url, OPENAI_API_KEY="none", XDG_CACHE_HOME=str(tmp_path))
    assert str(known.item.reference["answers"][0]) in done.stdout  # type: ignore[index]
    # The stand-in answers otherwise without the skill's rule: it did get there.
    assert plain.returncode == 0
    assert plain.stdout != done.stdout
