import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ConfigError, StoreUnavailable
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.core.types import DATA_SPLITS, Item, Split
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui import skills_list
from skillopt_airflow.ui.plugin import SkillOptPlugin, app
from tests.stored_run import store_run
from tests.training.in_process import InProcessConnections, configured
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain
from tests.ui.shelf import Shelf, Tables
from tests.ui.users import log_in

TARGET = "openai-chat:org/model"


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr("skillopt_airflow.pipeline.triggered.base_target", lambda benchmark: TARGET)
    return Shelf(monkeypatch)


@pytest.fixture
def browser(shelf: Shelf, tables: Tables) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def listed(browser: TestClient, **query: str | int) -> html.HtmlElement:
    answer = browser.get("/skills", params=query)
    assert answer.status_code == 200
    return html.document_fromstring(answer.text)


def rows(page: html.HtmlElement) -> list[str]:
    return [" ".join(row.text_content().split()) for row in page.xpath("//tbody/tr")]


def test_airflow_takes_the_entry_of_its_navigation() -> None:
    view = next(one for one in SkillOptPlugin.external_views if one["name"] == "Skills")
    assert ExternalViewResponse.model_validate(view).destination == "nav"
    assert view["href"] == "skillopt/skills"


def test_without_a_login_there_is_nothing_to_see(browser: TestClient) -> None:
    answer = browser.get("/skills")
    assert (answer.status_code, "Log in" in answer.text) == (401, True)


def test_what_cannot_be_read_is_told_on_a_page(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("the object store at http://s3 did not answer")

    log_in(monkeypatch)
    monkeypatch.setattr(skills_list, "_asked_and_late", away)
    answer = browser.get("/skills")
    assert (answer.status_code, "the object store at http://s3 did not answer" in answer.text) == (502, True)


def test_a_line_tells_champion_score_tokens_night_and_evidence(
    browser: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    artifacts = shelf.publish("searchqa", TARGET, "# One\n", "# Two\n")
    shelf.nights("searchqa", TARGET, artifacts, 20, drop_at=2)
    page = listed(browser)
    first, *others = rows(page)
    for part in ("searchqa", TARGET, "v0002", "of manual__2026-09-02", "0.6500 (0.5500 to 0.7500)", "40 items", "≈ 2"):
        assert part in first
    assert "demote 2026-10-20" in first
    assert re.search(r"E = \S+, limit 600", first)
    assert "Evidence of a decline over 20 nights" in page.xpath("//tbody//svg/@aria-label")[0]
    assert page.xpath("//tbody//th/a/@href")[0] == "skills/searchqa?target=openai-chat%3Aorg%2Fmodel"
    assert "runs/searchqa/manual__2026-09-02/report" in page.xpath("//tbody//td//a/@href")
    # The benchmarks without a skill say what to do.
    assert len(others) == len(benchmarks.names()) - 1
    assert all("Nothing is published yet. Train a first skill" in row for row in others)
    assert "../dags/train_docvqa" in page.xpath("//a[@target='_top']/@href")


def test_a_night_of_another_version_than_the_champion_says_so(
    browser: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    artifacts = shelf.publish("searchqa", TARGET, "# One\n", "# Two\n")
    shelf.nights("searchqa", TARGET, artifacts, 2)
    artifacts.roll_back(artifacts.list_versions()[0], "back", "worse", artifacts.champion.read())
    assert "of v0002" in rows(listed(browser))[0]


def test_nights_without_a_published_skill_and_a_skill_without_nights(
    browser: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    artifacts = shelf.publish("searchqa", TARGET)
    shelf.nights("searchqa", "openai-chat:other", artifacts, 1)
    measured, published = rows(listed(browser, q="SEARCH"))[:2]
    assert "Nothing published for this model." not in measured
    assert "No night yet." in measured
    assert "Nothing published for this model." in published
    assert "2026-10-01" in published


def test_who_may_read_one_dag_sees_nothing_of_the_others(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for benchmark in ("searchqa", "docvqa"):
        shelf.publish(benchmark, TARGET)
        tables.waits(f"publish_{benchmark}", "asks", "publication.approve")
    log_in(monkeypatch, ["train_searchqa", "publish_searchqa"])
    page = listed(browser)
    assert [row.split()[0] for row in rows(page)] == ["searchqa"]
    assert "docvqa" not in page.text_content()
    assert "1 skill of 1 benchmark" in page.text_content()
    assert rows(listed(browser, q="docvqa")) == []
    assert page.xpath("//a[contains(@href, 'required_actions')]/text()") == ["Publish?"]
    log_in(monkeypatch, [])
    assert "There is no benchmark whose training DAG you may read" in listed(browser).text_content()


def test_a_question_is_shown_to_who_may_read_its_dag(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.publish("searchqa", TARGET)
    tables.waits("rollback_searchqa", "r/1")
    log_in(monkeypatch, ["train_searchqa"])
    assert listed(browser).xpath("//a[contains(@href, 'required_actions')]") == []
    log_in(monkeypatch, ["train_searchqa", "rollback_searchqa"])
    [link] = listed(browser).xpath("//a[contains(@href, 'required_actions')]")
    assert link.get("href") == "../dags/rollback_searchqa/runs/r%2F1/tasks/approve/required_actions"
    assert (link.text, link.get("target")) == ("Roll back?", "_top")


def test_a_question_is_at_the_target_that_its_run_names(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    for target in ("a:other", TARGET):
        shelf.publish("searchqa", target)
    tables.waits("train_searchqa", "one", "publication.approve", **{"model.target": "a:other"})
    tables.waits("train_searchqa", "two", "publication.approve")
    tables.waits("publish_searchqa", "three", "publication.approve", target="b:not-there-yet")
    other, own = rows(listed(browser))[:2]
    assert (other.count("Publish?"), own.count("Publish?")) == (2, 1)


def test_a_question_is_at_the_target_of_the_run_that_it_is_about(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    for target in ("a:other", TARGET):
        shelf.publish("searchqa", target)
    for run in ("finished", "under-way"):
        ref = RunRef(benchmark="searchqa", run=run, storage=StorageGroup())
        config = configured("searchqa", {"model.target": "a:other"})
        items: dict[Split, list[Item]] = {split: [] for split in DATA_SPLITS}
        store_run(TrainingRun(ref, InProcessConnections(shelf.runs), shelf.runs), config, items)
    tables.waits("publish_searchqa", "later", "publication.approve", run="finished")
    tables.waits("train_searchqa", "under-way", "publication.approve")
    other, own = rows(listed(browser))[:2]
    assert (other.count("Publish?"), own.count("Publish?")) == (2, 0)


def test_a_question_about_a_line_that_is_not_shown_is_at_no_other(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    for target in ("a:other", TARGET):
        shelf.publish("searchqa", target)
    tables.waits("train_searchqa", "one", "publication.approve")
    assert [row.count("Publish?") for row in rows(listed(browser, q="searchqa a:other"))] == [0]
    assert [row.count("Publish?") for row in rows(listed(browser, q=f"searchqa {TARGET}"))] == [1]


def test_a_late_night_is_marked_at_the_benchmarks_own_target(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    for target in ("a:other", TARGET):
        shelf.publish("searchqa", target)
    tables.has_dag("regate_searchqa", due=datetime.now(UTC) - timedelta(hours=7))
    other, own = rows(listed(browser))[:2]
    assert ("late" in other, "late" in own) == (False, True)


def test_a_late_night_of_a_target_without_a_line_is_marked_at_the_benchmarks_first(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch)
    shelf.publish("searchqa", "a:former")
    tables.has_dag("regate_searchqa", due=datetime.now(UTC) - timedelta(hours=7))
    assert "late" in rows(listed(browser))[0]


def test_what_cannot_be_read_is_said_in_its_line(
    browser: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, ["train_docvqa", "train_searchqa", "train_sealqa"])
    for benchmark in ("docvqa", "searchqa"):
        shelf.publish(benchmark, TARGET)
    shelf.published.put_bytes(ArtifactKeys("", "docvqa", TARGET).champion, b"no alias")
    own = skills_list.benchmark_config

    def broken(name: str) -> object:
        if name == "sealqa":
            raise ConfigError("benchmark.yaml: <b>no such key</b>")
        return own(name)

    monkeypatch.setattr(skills_list, "benchmark_config", broken)
    docvqa, searchqa, sealqa = rows(listed(browser))
    assert "does not hold a Alias" in docvqa
    assert "v0001" in searchqa
    assert "<b>no such key</b>" in sealqa


def test_a_list_has_pages_and_reads_only_what_it_shows(
    browser: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, ["train_searchqa"])
    first = shelf.publish("searchqa", "a:0000")
    alias = shelf.published.get_bytes(ArtifactKeys("", "searchqa", "a:0000").champion)
    for place in range(1, skills_list.LINES + 5):
        shelf.published.put_bytes(ArtifactKeys("", "searchqa", f"a:{place:04d}").champion, alias)
    read: list[str] = []
    shelf.published.before_read = read.append
    page = listed(browser)
    assert len(rows(page)) == skills_list.LINES
    assert sum(key.endswith("champion.json") for key in read) == skills_list.LINES
    [following] = page.xpath("//nav[@class='pager']//a[@rel='next']/@href")
    assert following == "skills?q=&page=2"
    assert len(rows(listed(browser, page=2))) == 5
    assert len(rows(listed(browser, page=99))) == 5
    assert [row.split()[1] for row in rows(listed(browser, q="searchqa a:0003"))] == ["a:0003"]
    assert first.target == "a:0000"


@pytest.mark.parametrize("query", [{"page": 0}, {"page": "x"}, {"q": "x" * 300}])
def test_an_address_that_cannot_be_is_refused(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch, query: dict[str, str | int]
) -> None:
    log_in(monkeypatch)
    answer = browser.get("/skills", params=query)
    assert (answer.status_code, "No such page" in answer.text) == (422, True)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_change_nothing(
    browser: TestClient, shelf: Shelf, tables: Tables, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    log_in(monkeypatch, ["train_searchqa", "train_docvqa"])
    pages = []
    for one in (text, plain(text)):
        shelf.stores.clear()
        shelf.publish("searchqa", one[:250], f"# Skill\n{one}\n")
        shelf.published.put_bytes(ArtifactKeys("", "docvqa", one[:250]).champion, one.encode())
        pages.append(browser.get("/skills", params={"q": ""}).text)
        pages.append(browser.get("/skills", params={"q": one[:200]}).text)
    assert_harmless(pages[0], pages[2])
    assert_harmless(pages[1], pages[3])
