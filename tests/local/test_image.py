import re
from pathlib import Path

import docker
import pytest

from include.core.errors import ImageMissing
from local import image

PINNED = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==([^\s;]+)", re.MULTILINE)


def pins(path: Path) -> set[tuple[str, str]]:
    return set(PINNED.findall(path.read_text()))


def test_the_image_gets_the_program_and_no_data():
    files = {str(path) for path in image.program_files(image.ROOT)}

    assert {"include/rollout/__main__.py", "include/core/types.py", "benchmarks/searchqa/adapter.py"} <= files
    assert all(name.endswith(".py") for name in files)
    assert not any(name.startswith(("include/store", "include/sandbox", "include/models", "local")) for name in files)
    benchmark_files = {Path(name).name for name in files if name.startswith("benchmarks/")}
    assert benchmark_files == {"__init__.py", "adapter.py"}


def test_its_packages_have_the_versions_of_the_lock():
    inside, lock = pins(image.ROOT / image.REQUIREMENTS), pins(image.ROOT / "requirements.txt")
    assert "pydantic-ai-slim" in dict(inside)
    assert inside - lock == set()


def test_a_changed_input_is_another_image(tmp_path: Path):
    for path in [image.DOCKERFILE, image.REQUIREMENTS, Path("local/image.py"), *image.program_files(image.ROOT)]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((image.ROOT / path).read_bytes())
    before = image.inputs_hash(tmp_path)

    assert before == image.inputs_hash(image.ROOT)
    (tmp_path / "include/rollout/new.py").write_text("")
    assert image.inputs_hash(tmp_path) != before


def test_an_engine_that_is_gone_is_explained(tmp_path: Path):
    with pytest.raises(ImageMissing, match="tcp://127"):
        image.ensure(tmp_path, "tcp://127.0.0.1:9", print)


@pytest.mark.engine
def test_a_second_build_finds_the_first(docker_host: str):
    said: list[str] = []
    image.ensure(image.ROOT / ".local", docker_host, said.append)
    assert said == []


@pytest.mark.engine
def test_the_image_is_ready_to_run(docker_host: str):
    client = docker.DockerClient(base_url=docker_host)
    try:
        attributes = client.images.get(image.IMAGE).attrs["Config"]
        code = (
            "import importlib.util as u, sys; print(sys.version_info[:2], u.find_spec('airflow'), u.find_spec('pip'))"
        )
        said = client.containers.run(
            image.IMAGE, ["-c", code], entrypoint="python3", network_mode="none", remove=True
        ).decode()
        cached = client.containers.run(
            image.IMAGE,
            ["-c", "import include.rollout.settings as s; print(s.__cached__); open(s.__cached__).close()"],
            entrypoint="python3",
            network_mode="none",
            remove=True,
        ).decode()
    finally:
        client.close()
    assert attributes["User"] == "10001:10001"
    assert attributes["StopSignal"] == "SIGKILL"
    assert said.startswith("(3, ")
    assert "None" in said
    assert cached.strip().endswith(".pyc")
