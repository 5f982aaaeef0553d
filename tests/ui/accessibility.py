"""What axe-core, the usual checker of accessibility, finds on the page that a browser shows."""

from pathlib import Path

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from local import npm
from skillopt_airflow.core.errors import ImageMissing
from tests.platform_control import PROJECT
from tests.ui.airflow_pages import NARROW, WIDE, Page

AXE = npm.CLI(PROJECT / "tests/ui/axe/package-lock.json", ".", ("axe.min.js",))
"""A package for any architecture, under the name of one."""
CACHE = PROJECT / ".local" / "cache"
SECONDS = 120
# What is framed has a page of its own, and the frame around it is Airflow's.
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"], iframes: false, preload: false}).then(
  found => done(found.violations.map(one => [one.impact, one.id, one.nodes.map(node => node.html).slice(0, 5)])),
  error => done([["critical", String(error), []]]));
"""


def axe_source(folder: Path) -> str:
    """The checker as npm publishes it; the test is skipped where npm cannot bring it."""
    try:
        npm.stage(AXE, "x86_64", CACHE, folder)
    except ImageMissing as error:
        pytest.skip(f"no axe-core: {error}")
    return (folder / "axe.min.js").read_text(encoding="utf-8")


def findings(driver: WebDriver, source: str) -> list[str]:
    """The serious and critical findings on the page, or in the frame that the driver is in."""
    driver.set_script_timeout(SECONDS)
    if not driver.execute_script("return 'axe' in window"):
        driver.execute_script(source)
    found = driver.execute_async_script(RUN)
    return [f"{impact}: {rule}: {nodes}" for impact, rule, nodes in found if impact in ("serious", "critical")]


def assert_easy_to_use(page: Page, source: str, path: str) -> None:
    """In light and dark, and in a narrow window, axe finds nothing and nothing has to be scrolled sideways."""
    for theme in ("light", "dark"):
        page.choose_theme(theme)
        page.open(path)
        for width in (WIDE, NARROW):
            page.resize(width)
            assert findings(page.driver, source) == [], (path, theme, width)
            taken = page.driver.execute_script("return document.documentElement.scrollWidth")
            assert taken <= width, (path, theme, width)
    assert page.refused() == []
