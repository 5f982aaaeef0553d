import json
import re
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest
from fastapi.testclient import TestClient
from lxml import html

from skillopt_airflow.core.gate.paired import paired_values
from skillopt_airflow.store.keys import ArtifactKeys, MatrixKeys, RegateKeys
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from skillopt_airflow.training.champion.target_change import Pooled, TargetChangeNight, TargetChangeReport
from skillopt_airflow.training.report import skill_overview
from tests import page_data
from tests.store.tables.test_matrix_table import example
from tests.ui.hostile_texts import HOSTILE, assert_harmless, plain
from tests.ui.shelf import Shelf

TARGET = "openai-chat:org/model"
ROUTE = "/skills/searchqa"
pytestmark = pytest.mark.usefixtures("shelf")


def shown(viewer: TestClient, path: str = ROUTE, **query: str | int) -> html.HtmlElement:
    answer = viewer.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return html.document_fromstring(answer.text)


def section(page: html.HtmlElement, name: str) -> html.HtmlElement:
    [found] = page.xpath(f"//section[@id='{name}']")
    return found


def said(element: html.HtmlElement) -> str:
    return " ".join(" ".join(element.itertext()).split())


def rows(page: html.HtmlElement, name: str) -> list[str]:
    return [said(row) for row in section(page, name).xpath(".//tbody/tr")]


def test_a_page_shows_the_skill_and_its_history(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET, *(page_data.skill_text(lines) for lines in (2, 3, 4)))
    versions = artifacts.list_versions()
    shelf.nights("searchqa", TARGET, artifacts, 12)
    artifacts.roll_back(versions[1], "night-7", "demoted on 2026-10-12: worse", artifacts.champion.read())
    artifacts.roll_back(versions[0], "back-1", "worse on Monday", artifacts.champion.read())
    page = shown(viewer)
    cards = said(page.xpath("//dl[@class='cards']")[0])
    assert re.match(r"Champion v0001 since .* manual__2026-09-01", cards)
    assert "0.6000 95% CI: 0.5000 to 0.7000, 40 items of the test split" in cards
    assert "2026-10-12, of v0003" in cards
    # The newest first, each with what it changed.
    assert [row.split()[0] for row in rows(page, "versions")] == versions[::-1]
    assert "champion" in rows(page, "versions")[2]
    assert "+1 −0" in rows(page, "versions")[0]
    assert "test split, 40 items" in rows(page, "versions")[0]
    skills = (urlencode({"target": TARGET, "skill": name.partition("-")[2]}) for name in versions[::-1])
    there = [link for link in section(page, "versions").xpath(".//a/@href") if "/rollouts" in link]
    every = "../skills/searchqa/rollouts"
    assert there == [*(f"{every}?{skill}" for skill in skills), every]
    assert [row.split()[3] for row in rows(page, "moves")] == ["rolled", "demoted", *["published"] * 3]
    assert "back-1 worse on Monday" in rows(page, "moves")[0]
    # A chart, and its numbers.
    assert section(page, "nights").xpath(".//svg/@role") == ["img"]
    assert len(rows(page, "nights")) == 12
    assert re.fullmatch(
        r"2026-10-12 \w+ v0003( \d\.\d{4} \(\d\.\d{4} to \d\.\d{4}\)){3} 40 .*", rows(page, "nights")[0]
    )


def test_every_line_says_what_wrote_it(viewer: TestClient, shelf: Shelf) -> None:
    shelf.publish("searchqa", TARGET, page_data.skill_text(4))
    page = shown(viewer)
    lines = rows(page, "lines")
    assert lines[0] == "1 # Answering questions seed"
    assert lines[2].startswith("3 - Weigh titles more than running text")
    assert "step 2 (append, failure-0)" in lines[2]
    link = section(page, "lines").xpath(".//a/@href")[0]
    assert link == "../runs/searchqa/manual__2026-09-01/report#steps-step_0002-edit-0"
    assert len(lines) == 6


def test_any_two_versions_are_compared(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET, "# A\n\n- one\n", "# A\n\n- two\n", "# A\n\n- three\n")
    first, _, third = artifacts.list_versions()
    assert lines_of(shown(viewer)) == {"removed": ["-- two"], "added": ["+- three"]}
    assert lines_of(shown(viewer, **{"from": first, "to": third})) == {"removed": ["-- one"], "added": ["+- three"]}
    seed = lines_of(shown(viewer, **{"from": "seed", "to": first}))
    assert "+- one" in seed["added"]
    assert f"+{len(seed['added'])} −{len(seed['removed'])}" in rows(shown(viewer), "versions")[-1]
    assert "None: the two have the same text." in said(section(shown(viewer, **{"from": third, "to": third}), "diff"))
    page = shown(viewer, **{"from": first, "to": third})
    chosen = section(page, "diff").xpath(".//option[@selected]/text()")
    assert chosen == [first, third]
    assert section(page, "diff").xpath(".//select[1]/option/text()")[-1] == "seed"
    name = "../../etc/passwd"
    assert f"There is no version {name}." in said(section(shown(viewer, **{"from": name}), "diff"))


def lines_of(page: html.HtmlElement) -> dict[str, list[str]]:
    kinds = ("removed", "added")
    return {kind: section(page, "diff").xpath(f".//span[@class='{kind}']/text()") for kind in kinds}


def test_an_unfinished_version_and_one_with_too_many_lines(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET, "line\n" * 600, "# B\n")
    first, second = artifacts.list_versions()
    shelf.published.put_text(ArtifactKeys("", "searchqa", TARGET).version("v0003-0123456789ab").best_skill, "left")
    page = shown(viewer, **{"from": "v0003-0123456789ab", "to": second})
    assert "It was never completed" in rows(page, "versions")[0]
    assert "Version v0003-0123456789ab was never completed." in said(section(page, "diff"))
    assert "too many to compare here" in said(section(shown(viewer, **{"from": first, "to": second}), "diff"))
    artifacts.roll_back(first, "back", "", artifacts.champion.read())
    assert "The first 500 lines; 100 more" in said(section(shown(viewer), "lines"))


def test_versions_have_pages(viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_overview, "VERSIONS", 2)
    artifacts = shelf.publish("searchqa", TARGET, *(page_data.skill_text(lines) for lines in range(1, 6)))
    read: list[str] = []
    shelf.published.before_read = read.append
    page = shown(viewer)
    assert len(rows(page, "versions")) == 2
    # The champion's twice, and once those of the versions that are shown and of the one before them.
    assert sum(key.endswith("manifest.json") for key in read) == 4
    [link] = section(page, "versions").xpath(".//a[@rel='next']/@href")
    older = html.document_fromstring(viewer.get(urljoin(ROUTE, link)).text)
    assert [row.split()[0] for row in rows(older, "versions")] == artifacts.list_versions()[::-1][2:4]
    beyond = section(shown(viewer, page=9), "versions")
    assert [row.split()[0] for row in rows(shown(viewer, page=9), "versions")] == artifacts.list_versions()[:1]
    assert "Page 3 of 3" in said(beyond)
    for shown_moves in (rows(page, "moves"), rows(older, "moves")):
        assert [row.split()[3] for row in shown_moves] == ["published"] * 5


def test_targets_have_a_page_each(viewer: TestClient, shelf: Shelf) -> None:
    for target in (TARGET, "z:other"):
        shelf.publish("searchqa", target, f"# {target}\n")
    assert said(shown(viewer).xpath("//p[@class='meta']")[0]) == f"Target {TARGET}"
    page = shown(viewer, target="z:other")
    assert page.xpath("//select[@name='target']/option/@value") == [TARGET, "z:other"]
    assert page.xpath("//select[@name='target']/option[@selected]/@value") == ["z:other"]
    answer = viewer.get(ROUTE, params={"target": "<b>none"})
    assert (answer.status_code, "<b>" in answer.text) == (404, False)


@pytest.mark.parametrize(("conn_id", "named"), [("theirs", 3), ("skillopt_target", 0)])
def test_forms_name_the_models_own_connection(viewer: TestClient, shelf: Shelf, conn_id: str, named: int) -> None:
    artifacts = shelf.publish("searchqa", "z:other", "# A\n")
    origin = page_data.provenance("run-2", "z:other", "# B\n")
    origin = origin.model_copy(update={"config": {"model": {"target_conn_id": conn_id}}})
    artifacts.publish("# B\n", origin, artifacts.champion.read(), "better")
    forms = [json.loads(text) for text in section(shown(viewer), "next").xpath(".//pre/text()")]
    # The one for another model leaves its name open, and so its connection.
    assert [one.get("overrides", {}).get("model.target_conn_id") for one in forms].count(conn_id) == named


def test_forms_are_filled_for_airflow_and_a_rollback_leads_to_the_champion_that_this_one_followed(
    viewer: TestClient, shelf: Shelf
) -> None:
    artifacts = shelf.publish("searchqa", TARGET, "# A\n", "# B\n")
    first, second = artifacts.list_versions()
    following = section(shown(viewer), "next")
    assert following.xpath(".//details//a[@target='_top']/@href") == [
        f"../../dags/{name}_searchqa" for name in ("evaluate", "regate", "publish", "rollback")
    ]
    conf = json.loads(following.xpath(".//pre/text()")[-1])
    assert (conf["version"], conf["leaving"]) == (first, second)
    artifacts.roll_back(first, "night-7", "demoted on 2026-10-12: worse", artifacts.champion.read())
    assert not section(shown(viewer), "next").xpath(".//*[@id='do-roll']")
    origin = page_data.provenance("manual__2026-10-13", TARGET, "# C\n")
    artifacts.publish("# C\n", origin, artifacts.champion.read(), "better")
    for page in (shown(viewer), shown(viewer, page=2)):
        configurations = section(page, "next").xpath(".//pre/text()")
        assert f'"version": "{first}"' in configurations[-1]
        assert json.loads(configurations[0])["skills"][0] == first


def test_what_may_wait_for_an_approval_is_linked(viewer: TestClient, shelf: Shelf) -> None:
    shelf.publish("searchqa", TARGET)
    links = section(shown(viewer), "next").xpath("./p/a/@href")
    assert links == [f"../../dags/{name}_searchqa/required_actions" for name in ("train", "publish", "rollback")]


@pytest.mark.nightly
def test_a_skill_under_another_model(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET)
    shelf.nights("searchqa", TARGET, artifacts, 1)
    shelf.nights("searchqa", "z:new", artifacts, 1)
    [night] = page_data.nights(
        "searchqa", TARGET, page_data.contender(artifacts, artifacts.list_versions()[0]), None, 1
    )
    gain = paired_values([(1.0, 0.0), (1.0, 1.0), (0.0, 0.0)], ["2026-10-01", "2026-10-01", "2026-10-02"])
    pooled = Pooled(old=gain, new=gain, old_p=0.5, new_p=0.25)
    # Most nights are of one model alone, or of another champion.
    alone = TargetChangeNight(date="2026-10-03", champion=night.champion.version, old=night.against_seed, new=None)
    names = {"benchmark": "searchqa", "old_target": TARGET, "new_target": "z:new", "champion": night.champion.version}
    report = TargetChangeReport(**names, nights=(alone,) * 3, pooled=pooled)
    key = f"{RegateKeys('', 'searchqa', 'z:new').target_change(TARGET)}.json"
    shelf.runs.put_model(key, report)
    for target in (TARGET, "z:new"):
        [row] = rows(shown(viewer, target=target), "transfer")
        assert re.search(r"z:new v0001 2 [+−]\d\.\d{4} \([+−]\d\.\d{4} to [+−]\d\.\d{4}\)", row)
    other = shown(viewer, target="z:new")
    assert "Nothing is published for z:new" in said(section(other, "versions"))
    assert '"model.target": "z:new"' in said(section(other, "next"))
    shelf.runs.put_model(key, report.model_copy(update={"pooled": None}))
    assert rows(shown(viewer), "transfer")[0].endswith("v0001 – no night of both yet")


def test_of_many_models_some_are_shown_and_all_are_counted(viewer: TestClient, shelf: Shelf) -> None:
    shelf.publish("searchqa", TARGET)
    for number in range(60):
        # Most models have nights, and were never compared with this one.
        shelf.runs.put_bytes(f"{RegateKeys('', 'searchqa', f'a:{number:02d}').folder}contents.parquet", b"")
    for number in range(12):
        names = {"benchmark": "searchqa", "old_target": TARGET, "new_target": f"z:{number:02d}", "champion": "v0001"}
        key = f"{RegateKeys('', 'searchqa', names['new_target']).target_change(TARGET)}.json"
        shelf.runs.put_model(key, TargetChangeReport(**names, nights=(), pooled=None))
    page = shown(viewer, target=TARGET)
    assert [row.split()[1] for row in rows(page, "transfer")] == [f"z:{number:02d}" for number in range(10)]
    assert "10 of 12 comparisons" in said(section(page, "transfer"))


def test_a_skill_under_several_models_and_harnesses(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET, "# A\n", "# B\n")
    champion, table = artifacts.champion.read(), MatrixTable(shelf.runs, MatrixKeys("", "searchqa"))
    assert champion is not None
    for day in range(3):
        made = example(f"matrix-{day}", day)
        skills = (made.skills[0], made.skills[1].model_copy(update={"sha256": champion.sha256}))
        table.save(made.model_copy(update={"skills": skills}), "")
    table.save(example("another", 9), "")
    part = section(shown(viewer), "transfer")
    # The newest ones of this very text.
    assert [said(heading).split()[1].rstrip(",") for heading in part.xpath(".//h3")] == ["matrix-2", "matrix-1"]
    assert len(part.xpath(".//table[@class='matrix']/caption")) == 2
    assert part.xpath(".//tbody/tr/th[@scope='rowgroup']")[1].text_content() == "openai-chat:other"
    assert "12 of 12 items: model_error: " in said(part)
    assert "No data yet" not in said(part)


def test_empty_states_say_what_to_do(viewer: TestClient, shelf: Shelf) -> None:
    page = shown(viewer)
    assert "Nothing is published yet" in said(page)
    assert page.xpath("//a[@target='_top']/@href") == ["../../dags/train_searchqa"]
    shelf.publish("searchqa", TARGET)
    page = shown(viewer)
    assert "No nights yet" in said(section(page, "nights"))
    assert "No data yet" in said(section(page, "transfer"))


def test_a_version_that_was_tampered_with_is_named(viewer: TestClient, shelf: Shelf) -> None:
    artifacts = shelf.publish("searchqa", TARGET)
    key = ArtifactKeys("", "searchqa", TARGET).version(artifacts.list_versions()[0]).best_skill
    shelf.published.put_text(key, "changed")
    answer = viewer.get(ROUTE)
    assert (answer.status_code, "was changed after it was published" in answer.text) == (502, True)


@pytest.mark.nightly
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_change_nothing(viewer: TestClient, shelf: Shelf, text: str) -> None:
    pages = []
    for one in (text, plain(text)):
        shelf.stores.clear()
        target = one[:250]
        artifacts = shelf.publish("searchqa", target, "# A\n", f"# B\n{one}\n")
        first, second = artifacts.list_versions()
        artifacts.roll_back(first, one, one, artifacts.champion.read())
        query: dict[str, Any] = {"target": target, "from": first, "to": second}
        pages += [viewer.get(ROUTE, params=query | {"to": one[:250]}).text]
        artifacts.roll_back(second, "run", "back", artifacts.champion.read())
        pages += [viewer.get(ROUTE, params=query).text]
    assert_harmless(pages[0], pages[2])
    assert_harmless(pages[1], pages[3])


def test_a_hostile_version_of_a_night_stays_a_text(viewer: TestClient, shelf: Shelf) -> None:
    pages = []
    for one in (HOSTILE["closed_style"], plain(HOSTILE["closed_style"])):
        artifacts = shelf.publish("searchqa", TARGET, "# A\n")
        contender = page_data.contender(artifacts, artifacts.list_versions()[0]).model_copy(update={"version": one})
        made = page_data.nights("searchqa", TARGET, contender, None, 2)
        page_data.store_nights(shelf.runs, RegateKeys("", "searchqa", TARGET), made)
        pages.append(viewer.get(ROUTE).text)
        shelf.stores.clear()
    # Plots bring styles of their own.
    assert_harmless(*(re.sub(r"<svg .*?</svg>", "", page, flags=re.DOTALL) for page in pages))
    assert all("owned" not in svg for svg in re.findall(r"<svg .*?</svg>", pages[0], flags=re.DOTALL))
