"""Real instances of SWE-bench in the judge's container: the gold patch resolves each of them, and no change none.

Their images take minutes and their packages hundreds of megabytes, so they run if SKILLOPT_TEST_PROVIDER is set.
SKILLOPT_SWEBENCH names a folder of instance folders; benchmarks/swebench/README.md describes one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import docker
import pytest

from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.core.protocols import JudgesRepository
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.core.types import Item, JsonObject, Score
from skillopt_airflow.sandbox.item_images import ItemImages
from skillopt_airflow.sandbox.judge_container import JudgeContainer
from tests.sandbox.small_repository import added, with_hashes

pytestmark = [
    pytest.mark.engine,
    pytest.mark.provider,
    pytest.mark.skipif(not os.environ.get("SKILLOPT_TEST_PROVIDER"), reason="SKILLOPT_TEST_PROVIDER is not set"),
]
FOLDER = Path(os.environ.get("SKILLOPT_SWEBENCH", "/nowhere"))
FILES = ("repo.tar.gz", "requirements.txt")
LIMITS = SandboxGroup(memory="2g")


@pytest.fixture(scope="module")
def client(docker_host: str) -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(base_url=docker_host, timeout=600)) as client:
        yield client


def record_of(folder: Path) -> JsonObject:
    run: JsonObject = json.loads((folder / "run.json").read_text())
    record: JsonObject = json.loads((folder / "instance.json").read_text())
    return {**record, "instance": folder.name, "run": run}


def judged(client: docker.APIClient, item: Item, patch: str, contents: Mapping[str, bytes]) -> Score:
    benchmark = benchmarks.load("swebench")
    assert isinstance(benchmark, JudgesRepository)
    wanted = benchmark.tests(item, patch)
    if isinstance(wanted, Score):
        return wanted
    tag = ItemImages(client, image.IMAGE, LIMITS, lambda _: contents).of(item)
    ran = JudgeContainer(client, LIMITS, {"run": "runnable"}).run(item, tag, wanted)
    return benchmark.score_tests(item, patch, ran)


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"SKILLOPT_SWEBENCH: {FOLDER} is not there")
def test_gold_resolves_every_instance_and_nothing_none(client: docker.APIClient) -> None:
    def scores(folder: Path) -> tuple[float, float, float]:
        contents = {name: (folder / name).read_bytes() for name in FILES}
        record = record_of(folder)
        item = with_hashes(benchmarks.load("swebench").item(record), contents)
        patches = (str(record["patch"]), "", added("of_no_use.py", "NOTE = 1"))
        first, *others = (judged(client, item, patch, contents) for patch in patches)
        print(folder.name, first.feedback, *(other.feedback for other in others), sep="\n  ")
        return first.hard, others[0].hard, others[1].hard

    folders = sorted(path.parent for path in FOLDER.glob("*/run.json"))
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(folders, pool.map(scores, folders), strict=True))
    assert found
    assert set(found.values()) == {(1.0, 0.0, 0.0)}, found
