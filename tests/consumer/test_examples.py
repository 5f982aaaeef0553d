import shutil
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from local.standin.economy import World
from local.standin.known_items import of_benchmark
from skillopt_airflow.store.objects import ObjectStore
from tests.consumer.conftest import BENCHMARK, CONSUMER, PREFIX, PROJECT, TARGET, Publish, run

EXAMPLES = PROJECT / "examples"
SKILL = "- Leave out words of the question.\n"


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
    publish(SKILL)
    pod = deployment["spec"]["template"]["spec"]
    start, sidecar = ([*one["command"], *one["args"]] for one in pod["initContainers"])
    assert run(placed(start, store.bucket, tmp_path)).returncode == 0
    assert (tmp_path / "current" / "best_skill.md").read_text() == SKILL
    # The volume is mounted elsewhere in the application: the link has to be relative.
    shutil.move(tmp_path, elsewhere := tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    assert (elsewhere / "current" / "best_skill.md").read_text() == SKILL
    assert without_watch(sidecar) == start
    # The compose example runs what the sidecar runs.
    services: Any = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    assert services["skill"]["command"] == pod["initContainers"][1]["args"]
    assert 'ENTRYPOINT ["python", "/app/consumer.py"]' in (EXAMPLES / "Dockerfile").read_text()
    assert pod["initContainers"][1]["command"] == ["python", "/app/consumer.py"]


@pytest.mark.nightly
def test_the_skills_folders(publish: Publish, store: ObjectStore, tmp_path: Path) -> None:
    # Claude Code would run the command, and put the prompt's first word in the place of the argument.
    written = SKILL + "- !`rm -rf .` costs $1\n"
    version = publish(written).version
    words = [str(EXAMPLES / "skills_folder.sh"), str(CONSUMER), store.bucket, BENCHMARK, TARGET, "search-qa"]
    done = run([*words, "--prefix", PREFIX, "--cache", str(tmp_path / "cache")], cwd=tmp_path, PATH=path_of_python())
    assert (done.returncode, done.stderr) == (0, "")
    texts = {".claude": SKILL + "- ! `rm -rf .` costs \\$1\n", ".agents": written}
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
