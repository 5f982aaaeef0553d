"""What an item brings: pictures for the server and the CLIs, and documents or a web search."""

import asyncio
import base64
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.pictures import mark
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.rollout.harnesses.chat import ChatHarness
from skillopt_airflow.rollout.harnesses.claude_code import ClaudeCodeHarness
from skillopt_airflow.rollout.harnesses.codex import CodexHarness
from skillopt_airflow.rollout.harnesses.conversation import item_pictures
from skillopt_airflow.rollout.harnesses.tools import ToolsHarness
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import ItemFolders, SearchUnavailable, WebSearch
from skillopt_airflow.tasks.corpus import FoundDocument
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.task_group import TaskGroup
from tests.gateway.gateway_rig import PATHS, rigs
from tests.gateway.scripted_provider import Asked, completion
from tests.gateway.search_rig import search_server, web_search
from tests.rollout.single_item import PLAIN, run_item
from tests.rollout.wire import says

TASK = TaskGroup.model_validate(
    {
        "prompt": "Which is larger, {{ left }} or {{ right }}?",
        "reference": "answer",
        "score": {"by": "exact"},
        "pictures": ["left", "right"],
    }
)
BENCHMARK = declared_benchmark(TASK)
ITEM = BENCHMARK.item({"left": "maps/a.tiff", "right": "maps/b.jpeg", "answer": "left"})
HARNESSES = {"chat": ChatHarness, "tools": ToolsHarness}


def picture(kind: str) -> bytes:
    made = BytesIO()
    Image.effect_noise((32, 32), 90).convert("RGB").save(made, kind)
    return made.getvalue()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """The item's files as a container has them."""
    folder = tmp_path / "in"
    folder.mkdir()
    for file, kind in zip(ITEM.files, ("PNG", "JPEG"), strict=True):
        (folder / file.name).write_bytes(picture(kind))
    return folder


def sent(part: Any) -> Iterator[str | tuple[str, bytes, str | None]]:
    """The texts and pictures of a request's part, in their order: media type, bytes, and how closely to look."""
    match part:
        case {"type": "text" | "input_text", "text": str(text)}:
            yield text
        case {"type": "image_url", "image_url": {"url": str(url), **options}}:
            yield (*_decoded(url), options.get("detail"))
        case {"type": "input_image", "image_url": str(url), **options}:
            yield (*_decoded(url), options.get("detail"))
        case {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}:
            yield media_type, base64.b64decode(data, validate=True), None


def _decoded(url: str) -> tuple[str, bytes]:
    head, _, data = url.partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data, validate=True)


def run(harness: str, inputs: Path, dialect: str, **changed: Any) -> tuple[Trajectory, Asked]:
    settings = RolloutSettings(**PLAIN | {"harness": harness, "dialect": dialect, "max_turns": 2} | changed)
    opened = partial(HARNESSES[harness], settings, BENCHMARK)
    item = PublicItem(id=ITEM.id, public=ITEM.public)
    trajectory, [asked] = run_item(
        lambda asked: says(dialect, "<answer>left</answer>"), opened, item, inputs.parent / "out", inputs=inputs
    )
    return trajectory, asked


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("harness", HARNESSES)
def test_the_server_gets_the_very_pictures_in_their_places(harness: str, dialect: str, inputs: Path) -> None:
    trajectory, asked = run(harness, inputs, dialect)
    turns = asked.body.get("messages", asked.body.get("input"))
    [content] = [turn["content"] for turn in turns if turn.get("role") == "user"]
    left, right = ((inputs / file.name).read_bytes() for file in ITEM.files)
    looked = {"anthropic": None, "openai": "auto", "openai-chat": None}[dialect]
    assert [one for part in content for one in sent(part)] == [
        "Which is larger, ",
        ("image/png", left, looked),
        " or ",
        ("image/jpeg", right, looked),
        "?",
    ]
    # What is stored names them, and no more.
    assert (trajectory.status, trajectory.answer) == (Status.OK, "left")
    told = [message.content for message in trajectory.messages if message.role == "user"]
    assert told == ["Which is larger, [picture: picture-1.png] or [picture: picture-2.jpg]?"]


def test_an_agents_cli_is_given_the_files(inputs: Path) -> None:
    paths = [str(inputs / file.name) for file in ITEM.files]
    codex = CodexHarness(RolloutSettings(**PLAIN | {"harness": "codex", "dialect": "openai"}), BENCHMARK, "http://g")
    command = list(codex.command(paths))
    assert command[command.index("--") - 2 : command.index("--")] == [f"--image={path}" for path in paths]
    claude = ClaudeCodeHarness(
        RolloutSettings(**PLAIN | {"harness": "claude_code", "dialect": "anthropic"}), BENCHMARK, "http://g"
    )
    assert [line for line in claude.prompt("Look!", paths).splitlines() if "with the tool Read" in line] == [
        f"Before you answer, look at the picture {path} with the tool Read." for path in paths
    ]


def test_only_pictures_that_a_text_names_are_read(inputs: Path) -> None:
    (inputs / "notes.txt").write_text("no picture")
    workspace = ItemFolders(inputs, inputs, 1.0)
    first, second = (file.name for file in ITEM.files)
    assert list(item_pictures([f"x {mark(first)}", mark("notes.txt"), mark("gone.png")], workspace)) == [first]
    assert set(item_pictures([mark(first), mark(second)], workspace)) == {first, second}
    assert item_pictures(["no mark"], workspace) == {}


PAGES = [
    FoundDocument(title="Walks", url="https://a.example", text="The tide decides."),
    FoundDocument(title="Council", url="https://b.example", text="The mayor is A. Lind."),
]
W = FoundDocument(title="Mayor", url="https://w.example", text="Found by the server.")


def test_offline_the_items_own_documents_are_searched_and_opened() -> None:
    folders = ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0)
    assert asyncio.run(folders.search("mayor", PAGES)) == [PAGES[1]]
    assert asyncio.run(folders.search("council", PAGES)) == [PAGES[1]]
    assert asyncio.run(folders.search("zebra", PAGES)) == []
    assert asyncio.run(folders.search("mayor", [])) == []
    assert asyncio.run(folders.open_page(" https://b.example", PAGES)) == PAGES[1].text
    for address in ("https://c.example", "../../etc/passwd", "file:///etc/passwd", "http://127.0.0.1/", ""):
        with pytest.raises(DataError, match="no such page"):
            asyncio.run(folders.open_page(address, PAGES))


def test_a_search_of_the_web_goes_through_the_gateway(tmp_path: Path) -> None:
    with (
        search_server("searxng", lambda query: (200, [{"url": W.url, "title": W.title, "content": W.text}])) as server,
        rigs(tmp_path) as make,
    ):
        rig = make(lambda _: completion(""), search=web_search(server))
        web = WebSearch(str(rig.socket_path), 20.0)
        folders = ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0, web=web)
        assert asyncio.run(folders.search("mayor", PAGES)) == [W]
        assert asyncio.run(folders.open_page(W.url, PAGES)) == W.text
        for bad in ("http://127.0.0.1/", "../x", PAGES[0].url):
            with pytest.raises(DataError, match="no such page"):
                asyncio.run(folders.open_page(bad, PAGES))
        with pytest.raises(DataError, match="not usable"):
            asyncio.run(folders.search("", PAGES))
        assert not web.failure
        server.answer = lambda query: (401, "no")
        with pytest.raises(SearchUnavailable, match="connection skillopt_search"):
            asyncio.run(folders.search("keeper", PAGES))
    assert "connection skillopt_search" in web.failure


def test_a_gateway_that_is_gone_is_a_lost_search(tmp_path: Path) -> None:
    web = WebSearch(str(tmp_path / "none.sock"), 1.0)
    with pytest.raises(SearchUnavailable):
        asyncio.run(web.search("mayor"))
    assert "does not answer" in web.failure
