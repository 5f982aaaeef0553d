"""Images made from one that an item names, as SWE-bench publishes them: a repository, and packages beside it."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import docker
import pytest

from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ImageMissing
from skillopt_airflow.core.values.types import Item, ItemImage
from skillopt_airflow.sandbox.docker.container import execute, remove_container
from skillopt_airflow.sandbox.docker.item_images import ItemImages, ensure_named, full_name
from skillopt_airflow.sandbox.judge_container import JudgeContainer
from skillopt_airflow.tasks.protocols import JudgesRepository
from skillopt_airflow.tasks.repository_tests import RepositoryTests
from tests.sandbox.small_repository import CONTENTS, GOLD, RECORD, small_item, tree

pytestmark = pytest.mark.engine

PUBLISHED = "swebench/sweb.eval.x86_64.ledger_1776_ledger-1"
LIMITS = SandboxGroup(test_timeout=60)
MAKE = """
set -e
mkdir -p /opt/miniconda3/envs
cp -r --no-dereference /opt/item/venv /opt/miniconda3/envs/testbed
cd /testbed
git init -q . && git add -A && git commit -q -m base && git commit -q --allow-empty -m 'the fix: sum(amounts)'
echo /testbed > "$(ls -d /opt/miniconda3/envs/testbed/lib/python*/site-packages)/ledger.pth"
rm -rf /opt/item
"""


@pytest.fixture(scope="module")
def client(docker_host: str) -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(base_url=docker_host, timeout=600)) as client:
        yield client


@pytest.fixture(scope="module")
def published(client: docker.APIClient) -> Iterator[str]:
    """An image with the layout of SWE-bench's own; its tests' packages are those of the small repository's image."""
    packages = ItemImages(client, image.IMAGE, LIMITS, lambda _: CONTENTS).target_image(small_item())
    made = client.create_container(packages, entrypoint=["sleep", "600"], user="0:0")["Id"]
    try:
        client.start(made)
        assert execute(client, made, ["mkdir", "/testbed"], user="0:0", limit=10_000) == (0, "")
        client.put_archive(made, "/testbed", tree())
        status, said = execute(client, made, ["sh", "-c", MAKE], user="0:0", limit=10_000)
        assert status == 0, said
        client.commit(made, PUBLISHED, "latest")
    finally:
        remove_container(client, made)
    yield f"{PUBLISHED}:latest"
    client.remove_image(f"{PUBLISHED}:latest", force=True)


def named_item() -> Item:
    """The small repository as a published row: nothing says how its tests run or where its files are."""
    return benchmarks.load("swebench").item({key: RECORD[key] for key in RECORD if key not in ("instance", "run")})


def images(client: docker.APIClient) -> ItemImages:
    return ItemImages(client, image.IMAGE, LIMITS, lambda _: {})


def test_the_target_gets_repository_and_packages_on_the_sandbox_image(client: Any, published: str) -> None:
    item = named_item()
    assert item.image is not None
    assert item.image.name == published
    tag = images(client).target_image(item)
    assert images(client).target_image(item) == tag
    base, made = (client.inspect_image(name)["Config"] for name in (image.IMAGE, tag))
    assert made["Entrypoint"] == base["Entrypoint"]
    container = client.create_container(tag, entrypoint=["sleep", "60"], user="0:0")["Id"]
    try:
        client.start(container)
        look = "cat /opt/item/item.json; readlink /testbed /opt/item/venv; ls -A /opt/item/tree; "
        look += "GIT_DIR=/opt/item/git git log --all --format=%s; /opt/item/venv/bin/python -c 'import pytest'"
        status, said = execute(client, container, ["sh", "-c", look], user="0:0", limit=10_000)
    finally:
        remove_container(client, container)
    assert status == 0, said
    order, _, found = said.partition("}")
    assert json.loads(order + "}")["folder"] == "/testbed", said
    work, packages, *rest = found.split("\n")
    assert (work, packages) == ("/work", "/opt/miniconda3/envs/testbed"), said
    # Neither its git folder nor the commit of the fix, which a history may hold.
    assert rest == [*sorted(["NOTES", "ledger", "setup.cfg", "tests"]), "base", ""], said


@pytest.mark.nightly
def test_its_tests_run_in_what_the_named_image_has(client: Any, published: str) -> None:
    benchmark, item = benchmarks.load("swebench"), named_item()
    assert isinstance(benchmark, JudgesRepository)
    tag = images(client).judge_image(item)
    assert tag != images(client).target_image(item)

    def judged(patch: str) -> tuple[float, str]:
        wanted = benchmark.tests(item, patch)
        assert isinstance(wanted, RepositoryTests)
        ran = JudgeContainer(client, LIMITS, {"run": "published"}).run(item, tag, wanted)
        score = benchmark.score_tests(item, patch, ran)
        return score.hard, score.feedback

    assert judged(GOLD)[0] == 1.0
    assert judged(GOLD.replace("+    return sum(amounts)", "+    return sum(amounts[2:])"))[0] == 0.0


def test_an_image_without_such_folders_is_named(client: Any) -> None:
    item = named_item()
    other = ItemImage(name=image.IMAGE, folder="/nowhere", environment="/usr")
    with pytest.raises(ImageMissing, match="has no folder /nowhere"):
        images(client).target_image(item.model_copy(update={"image": other}))


def test_all_missing_images_are_named_at_once(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    limits = LIMITS.model_copy(update={"item_registry": "127.0.0.1:9/mirror"})
    assert full_name("a/b:1", limits) == "127.0.0.1:9/mirror/a/b:1"
    with pytest.raises(ImageMissing, match=r"2 of the items' 2 images.*mirror/none:1, 127.*mirror/none:2"):
        ensure_named(["none:1", "none:2"], limits)
