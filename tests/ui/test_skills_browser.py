"""The pages of skills in Airflow's own UI, by a real browser: two targets with nights in it."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.store.keys import ArtifactKeys, MatrixKeys, RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.matrix_table import MatrixTable
from tests import page_data
from tests.platform_control import RunningPlatform
from tests.store.tables.test_matrix_table import example
from tests.ui.accessibility import assert_easy_to_use
from tests.ui.airflow_pages import Page

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

BENCHMARK = "mathverse"
"""Which no other test of the platform publishes for."""
OLD, NEW = "anthropic:claude-4-haiku", "openai-chat:org/new-model-2026"
VIEW = "/plugin/skillopt-skills"
SKILL = f"/skillopt/skills/{BENCHMARK}?target={quote(OLD, safe='')}"


@pytest.fixture(scope="module", autouse=True)
def published(platform: RunningPlatform) -> Iterator[None]:
    storage = StorageGroup()
    runs, artifacts = (ObjectStore(platform.s3, name) for name in (storage.bucket, storage.artifact_bucket))
    for target, versions, nights, drop_at in ((OLD, 5, 24, 12), (NEW, 1, 6, None)):
        texts = [page_data.skill_text(2 + place) for place in range(versions)]
        skills = page_data.publish(artifacts, "", BENCHMARK, target, texts)
        names = skills.list_versions()
        newest, *before = (page_data.contender(skills, name) for name in names[::-1][:2])
        made = page_data.nights(BENCHMARK, target, newest, next(iter(before), None), nights, drop_at)
        page_data.store_nights(runs, RegateKeys("", BENCHMARK, target), made)
        save_matrix(runs, texts[-1])
    yield
    for store, prefix in (
        (artifacts, ArtifactKeys.of_benchmark("", BENCHMARK)),
        (runs, RegateKeys.of_benchmark("", BENCHMARK)),
        (runs, f"evaluations/benchmark={BENCHMARK}/"),
    ):
        for key in store.list_keys(prefix):
            store.delete(key)


def save_matrix(runs: ObjectStore, text: str) -> None:
    """Leave what a run of the evaluation DAG found for this skill, as the second of two."""
    made = example(f"of-{SkillDocument(text).sha256[:8]}")
    first, second = made.skills
    skills = (first, second.model_copy(update={"sha256": SkillDocument(text).sha256}))
    MatrixTable(runs, MatrixKeys("", BENCHMARK)).save(made.model_copy(update={"skills": skills}), "")


def into_the_frame(page: Page, *parts: str) -> None:
    page.driver.switch_to.frame(page.shown((By.TAG_NAME, "iframe")))
    page.wait_for_text(*parts)


def test_skills_are_one_click_away_in_the_navigation(pages: Page) -> None:
    pages.open("/")
    pages.click((By.CSS_SELECTOR, "a[href$='plugin/skillopt-skills']"))
    into_the_frame(pages, BENCHMARK, OLD, NEW, "regressed", "2026-10-06", "alarm at")
    pages.click((By.LINK_TEXT, BENCHMARK))
    pages.wait_for_text("Champion history", "v0005")
    # Airflow's own address follows, so that it can be passed on.
    pages.driver.switch_to.default_content()
    pages.until(lambda: f"{VIEW}/skillopt/skills/{BENCHMARK}?target=" in pages.driver.current_url, "address to pass on")
    pages.driver.refresh()
    into_the_frame(pages, "Champion history")


def test_what_can_be_done_next_leaves_the_frame(pages: Page) -> None:
    pages.open(f"{VIEW}{SKILL}")
    into_the_frame(pages, "Actions")
    pages.click((By.CSS_SELECTOR, "#do-roll summary"))
    assert '"leaving": "v0005-' in pages.shown((By.ID, "do-roll-conf")).text
    pages.click((By.LINK_TEXT, f"Open rollback_{BENCHMARK}"))
    pages.driver.switch_to.default_content()
    pages.until(lambda: pages.driver.current_url.endswith(f"/dags/rollback_{BENCHMARK}"), "way out of the frame")


def test_its_colours_follow_airflow_s_switch_at_once(pages: Page) -> None:
    pages.open(f"{VIEW}/skillopt/skills")
    for theme, colour in (("dark", "rgba(18, 22, 27, 1)"), ("light", "rgba(244, 246, 248, 1)")):
        pages.driver.switch_to.default_content()
        pages.choose_theme(theme)
        into_the_frame(pages, BENCHMARK)
        body = pages.driver.find_element(By.TAG_NAME, "body")
        pages.until(lambda body=body, colour=colour: body.value_of_css_property("background-color") == colour, theme)


def test_times_are_in_the_zone_that_was_chosen_in_airflow(pages: Page) -> None:
    pages.driver.execute_script("localStorage.timezone = JSON.stringify('Asia/Kolkata')")
    pages.open("/skillopt/skills?q=claude")
    time = pages.shown((By.CSS_SELECTOR, "time"))
    utc = str(time.get_attribute("datetime"))
    assert utc.endswith("+00:00")
    shift = pages.driver.execute_script(
        "return (new Date(arguments[0].replace(' ', 'T') + 'Z') - new Date(arguments[1].slice(0, 16) + 'Z')) / 60000",
        time.text,
        utc,
    )
    assert shift == 330
    assert "Asia/Kolkata" in str(time.get_attribute("title")) or "Asia/Calcutta" in str(time.get_attribute("title"))


def test_a_search_and_a_comparison_need_no_mouse(pages: Page) -> None:
    pages.open("/skillopt/skills")
    focused = pages.driver.switch_to.active_element
    focused.send_keys(Keys.TAB)
    assert pages.driver.switch_to.active_element.text == "Skip to the content"
    pages.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert pages.driver.switch_to.active_element.get_attribute("id") == "content"
    field = pages.shown((By.NAME, "q"))
    field.send_keys("claude", Keys.ENTER)
    pages.until(lambda: "q=claude" in pages.driver.current_url, "answer to the search")
    assert NEW not in pages.wait_for_text(OLD)
    pages.shown((By.LINK_TEXT, BENCHMARK)).send_keys(Keys.ENTER)
    pages.wait_for_text("Difference")
    pages.shown((By.NAME, "from")).send_keys("v0001")
    pages.shown((By.NAME, "to")).send_keys("v0003", Keys.TAB)
    pages.driver.switch_to.active_element.send_keys(Keys.ENTER)
    pages.until(lambda: "from=v0001" in pages.driver.current_url, "comparison")
    added = pages.driver.find_elements(By.CSS_SELECTOR, ".diff .added")
    assert len(added) == 2


@pytest.mark.parametrize("path", ["/skillopt/skills", "/skillopt/skills?q=no-such", SKILL, "/skillopt/skills/mmrb"])
def test_nothing_is_hard_to_use(pages: Page, axe: str, path: str) -> None:
    assert_easy_to_use(pages, axe, path)
