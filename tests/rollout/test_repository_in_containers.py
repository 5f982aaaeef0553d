"""The harness tools in the repository of an item's own image, and what of the work comes out."""

import json
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Status
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider
from tests.rollout.test_in_containers import workload
from tests.rollout.wire import calls, results, says
from tests.sandbox.fake_workload import FakeOperator
from tests.sandbox.remote_engine import signing_store, tcp_address
from tests.sandbox.small_repository import CONTENTS, small_item
from tests.store.conftest import s3_endpoint  # noqa: F401

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
LOOKS = "echo note > ledger/note.txt; git diff --stat; git status --short"
TURNS: list[tuple[str, dict[str, Any]]] = [
    ("shell", {"command": "git log --oneline | wc -l; python -m pytest -q tests 2>&1 | tail -1; ls /opt/item; env"}),
    ("view", {"path": "ledger/sums.py", "first": 1, "last": 2}),
    ("edit", {"path": "ledger/sums.py", "old": "amounts", "new": "all"}),
    ("edit", {"path": "ledger/sums.py", "old": "amounts[1:]", "new": "amounts"}),
    (
        "shell",
        {"command": f"{LOOKS}; grep -rn test_all_the_amounts / --include=*.py | head -3"},
    ),
    ("view", {"path": "../etc/passwd"}),
    ("submit", {}),
    ("shell", {"command": "echo late > late.txt"}),
]


@pytest.fixture(params=["shared files", "no shared files"])
def engine(
    request: pytest.FixtureRequest,
    gateway_docker_host: str,
    s3_endpoint: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[SandboxGroup, dict[str, Any]]]:
    """The containers' limits, and what the operator needs: for this engine, or for that of a connection."""
    if request.param == "shared files":
        yield SandboxGroup(), {"docker_url": gateway_docker_host}
        return
    with tcp_address(gateway_docker_host) as address, signing_store(s3_endpoint, request.node.nodeid) as store:
        connection = {"conn_type": "docker", "host": address, "extra": {"network": "host"}}
        monkeypatch.setenv("AIRFLOW_CONN_ENGINE_FAR_AWAY", json.dumps(connection))
        yield SandboxGroup(conn_id="engine_far_away"), {"store": store}


def test_the_target_works_in_a_copy_and_its_difference_comes_out(engine: tuple[SandboxGroup, dict[str, Any]]) -> None:
    limits, options = engine
    told: list[str] = []

    def answer(asked: Asked) -> Reply:
        told[:] = results(asked)
        if len(told) < len(TURNS):
            return calls("openai-chat", *TURNS[len(told)])
        return says("openai-chat", "I summed all amounts.")

    with ScriptedProvider(answer) as provider:
        changed = {"benchmark": "swebench", "max_turns": 12, "concurrency": 1}
        fake = workload("tools", "openai-chat", provider.base_url, [small_item()], **changed)
        fake.limits, fake.files_of_images = limits, CONTENTS
        FakeOperator(fake=fake, **options).execute({})

    (row,) = fake.trajectories
    assert (row.status, row.error, row.files) == (Status.OK, "", ("patch.diff",))
    patch = fake.left[row.item_id]["patch.diff"].decode()
    assert "+    return sum(amounts)\n" in patch
    assert "+++ b/ledger/note.txt" in patch
    assert "late.txt" not in patch
    first, seen, twice, changed, searched, outside, _, late = told
    assert first.startswith("1\n1 passed")
    assert "PYTHONPATH=/work\n" in first
    assert "/opt/skillopt" not in first
    assert seen.startswith("1\tdef total(amounts):\n2\t")
    assert "stands 2 times" in twice
    assert changed == "Changed ledger/sums.py at line 2."
    assert " 1 file changed, 1 insertion(+), 1 deletion(-)" in searched
    assert " M ledger/sums.py\n?? ledger/note.txt" in searched
    # Neither the tests that judge nor what they are to show is in this container.
    assert "test_all_the_amounts" not in searched
    assert "not in the repository" in outside
    assert "handed in already" in late
    assert json.dumps(row.model_dump(mode="json"))


def test_an_image_is_built_once_and_goes_when_nobody_uses_it(docker_host: str) -> None:
    from local import image
    from skillopt_airflow.sandbox.docker.item_images import ItemImages, remove_unused

    client = docker.APIClient(base_url=docker_host, timeout=600)
    try:
        asked: list[str] = []

        def contents(item: Any) -> Any:
            asked.append(item.id)
            return CONTENTS

        item = small_item()
        tag = ItemImages(client, image.IMAGE, SandboxGroup(), contents).target_image(item)
        assert ItemImages(client, image.IMAGE, SandboxGroup(), contents).target_image(item) == tag
        assert len(asked) <= 1
        assert tag not in remove_unused(client, days=1)
        assert client.images(name=tag)
        assert tag in remove_unused(client, days=0)
        assert not client.images(name=tag)
    finally:
        client.close()
