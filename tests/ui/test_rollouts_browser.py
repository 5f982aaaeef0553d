"""The rollouts of a real training in Airflow's own UI, by a real browser, with and without a mouse."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.run_states import RunStates
from skillopt_airflow.ui.rollout_list import DAG_RUN_ROUTE, SKILL_ROUTE
from tests.pipeline.trained_run import DAG, TrainedRun
from tests.platform_control import RunningPlatform
from tests.store.stored_rollouts import OTHER, SKILL
from tests.ui.accessibility import assert_easy_to_use
from tests.ui.airflow_pages import Page
from tests.ui.hostile_texts import HOSTILE, LONG
from tests.ui.test_hostile_rollouts import stored

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

BENCHMARK = "mathverse"
"""Which no other test of the platform rolls out at the usual place."""
STEP = {"moment": "steps/step_0001", "stage": "evaluate"}
ROWS = (By.CSS_SELECTOR, ".rollouts tbody tr")


@pytest.fixture(scope="module")
def hostile(platform: RunningPlatform) -> Iterator[str]:
    """The address of a skill's rollout that says what a page must not run."""
    text = "\n".join(one for one in HOSTILE.values() if len(one) < LONG // 10)
    made = stored(text, text)
    store = ObjectStore(platform.s3, StorageGroup().bucket)
    moved = {key.replace("searchqa", BENCHMARK): body for key, body in made.objects.items()}
    for key, body in moved.items():
        store.put_bytes(key, body)
    yield f"/skillopt{SKILL_ROUTE.format(benchmark=BENCHMARK)}?{urlencode({'skill': SKILL[:12], 'other': OTHER[:12]})}"
    for key in moved:
        store.delete(key)


def address(run: TrainedRun, **asked: str) -> str:
    return f"/skillopt{DAG_RUN_ROUTE.format(dag_id=DAG, run_id=run.run_id)}?{urlencode(STEP | asked)}"


def rows(page: Page) -> list[WebElement]:
    page.shown(ROWS)
    return page.driver.find_elements(*ROWS)


def test_a_run_has_its_rollouts_as_a_tab(pages: Page, plain: TrainedRun, tmp_path: Path) -> None:
    pages.open(f"/dags/{DAG}/runs/{plain.run_id}")
    pages.click((By.LINK_TEXT, "Rollouts"))
    pages.driver.switch_to.frame(pages.shown((By.TAG_NAME, "iframe")))
    pages.wait_for_text("Rollouts:", "rollouts with")
    Select(pages.shown((By.NAME, "moment"))).select_by_visible_text("Step 1")
    pages.click((By.CSS_SELECTOR, "form button"))
    pages.wait_for_text("Rollouts: Step 1, candidate on the selection split")
    state = RunStates(plain.store, plain.keys).read(plain.keys.runtime_state)
    measured = len(state.best.evaluation.scores)
    pages.wait_for_text(f"of {measured} rollouts with candidate of step 1")
    # The two skills that the gate compared, on an item where they differ.
    pages.click((By.PARTIAL_LINK_TEXT, "Compare with the skill"))
    pages.wait_for_text("Difference")
    pages.click((By.LINK_TEXT, "Difference"))
    pages.until(lambda: rows(pages)[0].text.count("1.0000") > 0, "an item that was won")
    pages.driver.save_screenshot(str(tmp_path / "list.png"))
    pages.click((By.CSS_SELECTOR, ".rollouts tbody a"))
    text = pages.wait_for_text("Conversation", "Scorer feedback", "a difference of", "candidate of step 1", "seed")
    assert text.count("Target\n") == 2
    left, right = pages.driver.find_elements(By.CSS_SELECTOR, ".sides > section")
    assert left.location["y"] == right.location["y"]
    pages.driver.save_screenshot(str(tmp_path / "item.png"))


def test_a_filter_and_the_next_item_need_no_mouse(pages: Page, plain: TrainedRun) -> None:
    pages.open(address(plain))
    every = len(rows(pages))
    show = pages.shown((By.NAME, "show"))
    show.send_keys("failures", Keys.TAB)
    pages.shown((By.NAME, "text")).send_keys(Keys.ENTER)
    pages.wait_for_text("filtered rollouts")
    assert 0 < len(rows(pages)) < every
    first, second = (row.text.split()[0] for row in rows(pages)[:2])
    pages.shown((By.CSS_SELECTOR, ".rollouts tbody a")).send_keys(Keys.ENTER)
    pages.until(lambda: pages.shown((By.TAG_NAME, "h1")).text == first, first)
    pages.shown((By.CSS_SELECTOR, "a[rel=next]")).send_keys(Keys.ENTER)
    pages.until(lambda: pages.shown((By.TAG_NAME, "h1")).text == second, second)
    skill = pages.shown((By.CSS_SELECTOR, ".sides summary"))
    skill.send_keys(Keys.ENTER)
    pages.wait_for_text("# ")


def test_nothing_is_hard_to_use(pages: Page, axe: str, plain: TrainedRun, hostile: str) -> None:
    other = {"other": "skills/skill_v0000.md"}
    paths = [
        address(plain, **other),
        address(plain, **other, place="1"),
        address(plain, stage="rollout", text="no such text"),
        f"/skillopt{SKILL_ROUTE.format(benchmark=BENCHMARK)}",
    ]
    for path in paths:
        assert_easy_to_use(pages, axe, path)


def test_what_a_target_said_runs_nothing(pages: Page, hostile: str) -> None:
    for path, expected in ((hostile, "rollouts with"), (f"{hostile}&place=1", "[U+202E]")):
        pages.open(path)
        pages.wait_for_text(expected)
        assert pages.driver.title != "owned"
        assert len(pages.driver.find_elements(By.CSS_SELECTOR, "script, iframe, base, meta[http-equiv]")) == 1
    assert "document.title = 'owned'" in pages.text()
    assert "7 * 7" in pages.text()
    assert pages.refused() == []
