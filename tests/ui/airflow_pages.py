"""Airflow's pages as a person uses them: the login, the form of a run, the approval of a task, a run's report."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 60
"""Until a page shows what it is asked for; it polls the server every few seconds."""
SECONDS_TO_SWITCH = 5
STEP_SECONDS = 300
WIDE, NARROW = 1300, 320
"""Widths of a window."""

Locator = tuple[str, str]
APPROVE: Locator = (By.CSS_SELECTOR, "[data-testid=hitl-option-Approve]")
DIALOG: Locator = (By.CSS_SELECTOR, "[data-scope=dialog][data-part=content]")


class Page:
    """What the browser shows; each look waits until it is there."""

    def __init__(self, driver: WebDriver, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> None:
        self.driver.get(f"{self.url}{path}")

    def leave(self) -> None:
        """Show nothing: Airflow's pages keep the browser busy as long as they are open."""
        self.driver.get("about:blank")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        wait = WebDriverWait(self.driver, SECONDS, ignored_exceptions=[StaleElementReferenceException])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"no {what} on {self.driver.current_url}, which shows:\n{self.text()}") from None

    def shown(self, locator: Locator) -> WebElement:
        """The first visible element."""

        def find() -> WebElement | None:
            found = self.driver.find_elements(*locator)
            return next((element for element in found if element.is_displayed()), None)

        element: WebElement = self.until(find, f"visible {locator[1]}")
        return element

    def click(self, locator: Locator) -> None:
        element = self.shown(locator)
        self.until(element.is_enabled, f"enabled {locator[1]}")

        def clicked() -> bool:
            self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            try:
                element.click()
            except ElementClickInterceptedException:
                # A section that is still opening moves what lies below it.
                return False
            return True

        self.until(clicked, f"way to {locator[1]}")

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def wait_for_text(self, *parts: str) -> str:
        """The page's visible text, once all parts are in it."""
        for part in parts:
            self.until(lambda part=part: part in self.text(), repr(part))
        return self.text()

    def resize(self, width: int) -> None:
        size = {"deviceScaleFactor": 1, "mobile": False, "height": 900, "width": width}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def choose_theme(self, theme: str) -> None:
        """As Airflow's own switch does."""
        self.driver.execute_script("localStorage.theme = arguments[0]", theme)

    def refused(self) -> list[str]:
        """What the browser has complained about on pages of the plugin since the last look."""
        logged: list[dict[str, Any]] = self.driver.get_log("browser")
        return [row["message"] for row in logged if "/skillopt/" in row["message"] and "sandbox" not in row["message"]]

    def log_in(self, username: str, password: str) -> None:
        self.open("/")
        self.shown((By.NAME, "username")).send_keys(username)
        self.shown((By.NAME, "password")).send_keys(password)
        self.click((By.CSS_SELECTOR, "button[type=submit]"))
        self.until(lambda: "/auth/login" not in self.driver.current_url, "way past the login")

    def trigger(self, dag_id: str, run_id: str, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """By the form: `fields` are the values to change, by section and Param."""
        self.open(f"/dags/{dag_id}")
        self.click((By.CSS_SELECTOR, "[data-testid=trigger-dag-button]"))
        form = TriggerForm(self)
        for section, values in fields.items():
            form.open_section(section)
            for name, value in values.items():
                form.fill(name, value)
        form.open_section("advancedOptions")
        form.type_into((By.NAME, "dagRunId"), run_id)
        form.submit()

    def open_approval(self, dag_id: str, run_id: str, task_id: str, *parts: str) -> str:
        """The page that asks to approve a waiting task; its text, once all parts are in it."""
        self.open(f"/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/required_actions")
        self.shown(APPROVE)
        return self.wait_for_text(*parts)

    def approve(self) -> None:
        """On the page of an approval."""
        self.click(APPROVE)
        self.until(lambda: not self._can_approve(), "answer taken")

    def _can_approve(self) -> bool:
        return any(button.is_enabled() for button in self.driver.find_elements(*APPROVE))

    def report(self, dag_id: str, run_id: str, *parts: str) -> str:
        """The text of a run's tab Skill report, once all parts are in it."""
        with self.open_report(dag_id, run_id):
            return self.wait_for_text(*parts)

    @contextmanager
    def open_report(self, dag_id: str, run_id: str) -> Iterator["ReportPage"]:
        """The tab Skill report of a run, in whose frame the driver is meanwhile."""
        self.open(f"/dags/{dag_id}/runs/{run_id}")
        self.click((By.LINK_TEXT, "Skill report"))
        self.driver.switch_to.frame(self.shown((By.TAG_NAME, "iframe")))
        try:
            yield ReportPage(self)
        finally:
            self.driver.switch_to.default_content()


class ShownReport(NamedTuple):
    """What the report of a run under way shows at a time."""

    renews: bool
    marked: bool
    """Whether it is still the document that was marked."""
    opened: bool
    """Whether the details of the first step are open."""


class ReportPage:
    """The report of a run under way."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def mark(self) -> None:
        """Mark the document, which a reload would replace."""
        self._page.driver.execute_script("window.marked = true")

    def open_details(self) -> None:
        """Open the first step in the part that is renewed."""
        self._page.driver.execute_script("document.querySelector('details.moment').setAttribute('open', '')")

    def wait_for(self, words: str) -> ShownReport:
        """The report when it has the words; a step may take minutes."""
        deadline = time.monotonic() + STEP_SECONDS
        while words not in self._page.driver.execute_script("return document.body.innerText"):
            assert time.monotonic() < deadline, f"no {words} in:\n{self._page.text()}"
            time.sleep(1)
        renews, marked, opened = self._page.driver.execute_script(
            """return [document.querySelector("[data-refresh]") !== null, window.marked === true,
            document.querySelector("details.moment")?.open === true]"""
        )
        return ShownReport(renews, marked, opened)


class TriggerForm:
    """The dialog of the button Trigger. Airflow names the control of a Param `element_<Param>`."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.shown(DIALOG)

    def open_section(self, name: str) -> None:
        """Params without a section are in `Run Parameters`."""
        heading = (By.CSS_SELECTOR, f"[data-part=item-trigger][id$=':trigger:{name}']")
        if self.page.shown(heading).get_attribute("aria-expanded") != "true":
            self.page.click(heading)
        body = (By.CSS_SELECTOR, f"[data-part=item-content][aria-labelledby$=':trigger:{name}']")
        self.page.shown(body)

    def fill(self, name: str, value: Any) -> None:
        element = f"element_{name}"
        if isinstance(value, bool):
            self._switch(element, value)
        elif isinstance(value, Mapping):
            self._edit(element, value)
        elif self.page.driver.find_elements(By.CSS_SELECTOR, f"[id='{element}'] [role=combobox]"):
            self._choose(element, value)
        else:
            self.type_into((By.NAME, element), str(value))

    def type_into(self, locator: Locator, text: str) -> None:
        field = self.page.shown(locator)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text, Keys.TAB)
        self.page.until(lambda: self.page.shown(locator).get_attribute("value") == text, f"{text!r} in {locator[1]}")

    def submit(self) -> None:
        self.page.click((By.CSS_SELECTOR, "[data-testid=trigger-dag-submit]"))
        self.page.until(lambda: not self._is_open(), "end of the form")

    def _is_open(self) -> bool:
        return any(element.is_displayed() for element in self.page.driver.find_elements(*DIALOG))

    def _switch(self, element: str, wanted: bool) -> None:
        switch = (By.CSS_SELECTOR, f"[id='switch:{element}']")
        state = "checked" if wanted else "unchecked"
        asked = [0.0]

        def switched() -> bool:
            if self.page.shown(switch).get_attribute("data-state") == state:
                return True
            # A click is lost while the form is drawn anew.
            if time.monotonic() - asked[0] > SECONDS_TO_SWITCH:
                asked[0] = time.monotonic()
                self.page.click((By.CSS_SELECTOR, f"[id='switch:{element}:control']"))
            return False

        self.page.until(switched, f"{element} {state}")

    def _choose(self, element: str, option: str) -> None:
        box = self.page.shown((By.CSS_SELECTOR, f"[id='{element}'] [role=combobox]"))
        box.send_keys(option)
        self.page.until(lambda: box.get_attribute("aria-expanded") == "true", f"options of {element}")
        box.send_keys(Keys.ENTER)
        hidden = self.page.driver.find_element(By.NAME, element)
        self.page.until(lambda: hidden.get_attribute("value") == option, f"{option} in {element}")

    def _edit(self, element: str, value: Mapping[str, Any]) -> None:
        """At once: key by key the editor would close brackets and quotes by itself."""
        lines = (By.CSS_SELECTOR, f"[id='{element}'] .view-lines")
        self.page.click(lines)
        focused = self.page.driver.switch_to.active_element
        focused.send_keys(Keys.CONTROL, "a")
        focused.send_keys(Keys.DELETE)
        self.page.driver.execute_cdp_cmd("Input.insertText", {"text": json.dumps(value)})
        # What the form has taken it indents.
        taken = _stripped(json.dumps(value, indent=2))
        self.page.until(lambda: _stripped(self.page.shown(lines).text) == taken, f"{value} in the editor")


def _stripped(text: str) -> set[str]:
    """Its lines; the editor has them in any order, and with spaces that don't break."""
    return {line.replace("\xa0", " ").strip() for line in text.splitlines()}
