"""An item's searches, offline and through a real gateway."""

import asyncio
from pathlib import Path

import pytest

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.rollout.workspace import ItemFolders, SearchUnavailable, WebSearch
from skillopt_airflow.tasks.corpus import FoundDocument
from tests.gateway.gateway_rig import rigs
from tests.gateway.scripted_provider import completion
from tests.gateway.search_rig import search_server, web_search

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
