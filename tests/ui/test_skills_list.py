import re

import pytest
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.ui import skill_page
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain
from tests.ui.shelf import Shelf
from tests.ui.users import log_in

TARGET = "openai-chat:org/model"
pytestmark = pytest.mark.usefixtures("shelf")


def listed(viewer: TestClient, **query: str | int) -> html.HtmlElement:
    answer = viewer.get("/skills", params=query)
    assert answer.status_code == 200
    return html.document_fromstring(answer.text)


def rows(page: html.HtmlElement) -> list[str]:
    return [" ".join(row.text_content().split()) for row in page.xpath("//tbody/tr")]


def test_a_line_tells_champion_score_tokens_night_and_evidence(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET, "# One\n", "# Two\n")
    shelf.nights("searchqa", TARGET, artifacts, 20, drop_at=2)
    page = listed(viewer)
    first, *others = rows(page)
    for part in ("searchqa", TARGET, "v0002", "of manual__2026-09-02", "0.6500 (0.5500 to 0.7500)", "40 items", "≈ 2"):
        assert part in first
    assert "regressed 2026-10-20" in first
    assert re.search(r"CUSUM \d+\.\d, alarm at 9\.4", first)
    assert "of v0002" not in first
    assert "Evidence of a decline over 20 nights" in page.xpath("//tbody//svg/@aria-label")[0]
    assert page.xpath("//tbody//th/a/@href")[0] == "skills/searchqa?target=openai-chat%3Aorg%2Fmodel"
    assert "runs/searchqa/manual__2026-09-02/report" in page.xpath("//tbody//td//a/@href")
    # The benchmarks without a skill say what to do.
    assert len(others) == len(benchmarks.names()) - 1
    assert all("Nothing is published yet" in row for row in others)
    out = page.xpath("//a[@target='_top']/@href")
    for link in ("dags/train_docvqa", "dags/regate_searchqa/runs", "required_actions?response_received=false"):
        assert f"../{link}" in out
    artifacts.roll_back(artifacts.list_versions()[0], "back", "worse", artifacts.champion.read())
    assert "of v0002" in rows(listed(viewer))[0]


def test_nights_without_a_published_skill_and_a_skill_without_nights(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET)
    shelf.nights("searchqa", "openai-chat:other", artifacts, 1)
    measured, published = rows(listed(viewer, q="SEARCH"))[:2]
    assert "Nothing published for this model." not in measured
    assert "No night yet." in measured
    assert "Nothing published for this model." in published
    assert "2026-10-01" in published


def test_who_may_read_one_dag_sees_nothing_of_the_others(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for benchmark in ("searchqa", "docvqa"):
        shelf.publish(benchmark, TARGET)
    log_in(monkeypatch, ["train_searchqa"])
    page = listed(viewer)
    assert [row.split()[0] for row in rows(page)] == ["searchqa"]
    assert "docvqa" not in page.text_content()
    assert "1 skill in 1 benchmark" in page.text_content()
    assert rows(listed(viewer, q="docvqa")) == []


def test_what_cannot_be_read_is_said_in_its_line(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, ["train_docvqa", "train_searchqa", "train_sealqa"])
    for benchmark in ("docvqa", "searchqa"):
        shelf.publish(benchmark, TARGET)
    shelf.published.put_bytes(ArtifactKeys("", "docvqa", TARGET).champion, b"no alias")
    own = skill_page.benchmark_config

    def broken(name: str) -> object:
        if name == "sealqa":
            raise ConfigError("benchmark.yaml: <b>no such key</b>")
        return own(name)

    monkeypatch.setattr(skill_page, "benchmark_config", broken)
    docvqa, searchqa, sealqa = rows(listed(viewer))
    assert "does not hold a Alias" in docvqa
    assert "v0001" in searchqa
    assert "<b>no such key</b>" in sealqa


def test_a_list_has_pages_and_reads_only_what_it_shows(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, ["train_searchqa"])
    first = shelf.publish("searchqa", "a:0000")
    alias = shelf.published.get_bytes(ArtifactKeys("", "searchqa", "a:0000").champion)
    for place in range(1, skill_page.PAGE_ROWS + 5):
        shelf.published.put_bytes(ArtifactKeys("", "searchqa", f"a:{place:04d}").champion, alias)
    read: list[str] = []
    shelf.published.before_read = read.append
    page = listed(viewer)
    assert len(rows(page)) == skill_page.PAGE_ROWS
    assert sum(key.endswith("champion.json") for key in read) == skill_page.PAGE_ROWS
    [following] = page.xpath("//nav[@class='pager']//a[@rel='next']/@href")
    assert following == "skills?q=&page=2"
    assert len(rows(listed(viewer, page=2))) == 5
    assert len(rows(listed(viewer, page=99))) == 5
    assert [row.split()[1] for row in rows(listed(viewer, q="searchqa a:0003"))] == ["a:0003"]
    assert first.target == "a:0000"


@pytest.mark.parametrize("query", [{"page": 0}, {"page": "x"}, {"q": "x" * 300}])
def test_an_address_that_cannot_be_is_refused(viewer: TestClient, query: dict[str, str | int]) -> None:
    answer = viewer.get("/skills", params=query)
    assert (answer.status_code, "No such page" in answer.text) == (422, True)


@pytest.mark.nightly
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_change_nothing(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    log_in(monkeypatch, ["train_searchqa", "train_docvqa"])
    pages = []
    for one in (text, plain(text)):
        shelf.stores.clear()
        shelf.publish("searchqa", one[:250], f"# Skill\n{one}\n")
        shelf.published.put_bytes(ArtifactKeys("", "docvqa", one[:250]).champion, one.encode())
        pages.append(viewer.get("/skills", params={"q": ""}).text)
        pages.append(viewer.get("/skills", params={"q": one[:200]}).text)
    assert_harmless(pages[0], pages[2])
    assert_harmless(pages[1], pages[3])
