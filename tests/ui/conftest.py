import io
import os
import shutil
from collections.abc import Iterator

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber
from fastapi.testclient import TestClient
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from local.environment import airflow_url
from local.home import ADMIN
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.run.state import Measured, seed_state
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.ui import reports
from skillopt_airflow.ui.plugin import app
from tests.platform_control import RunningPlatform
from tests.ui.accessibility import axe_source
from tests.ui.airflow_pages import WIDE, Page
from tests.ui.shelf import Shelf, Tables, airflow_tables
from tests.ui.users import log_in

PACKAGES = {"chromium": "chromium", "chromedriver": "chromium-driver"}
"""The programs, and which packages of Debian have them."""
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    # Shared memory is small in containers.
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
    # What moves without end is drawn without end, by the processor.
    "--force-prefers-reduced-motion",
)


@pytest.fixture
def tables() -> Iterator[Tables]:
    """Airflow's tables in memory."""
    with airflow_tables() as tables:
        yield tables


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    """The distribution's Chromium, without a screen; installed if it is missing."""
    if not all(shutil.which(program) for program in PACKAGES):
        if os.geteuid() != 0:
            pytest.fail(f"no browser: run `sudo apt-get install {' '.join(PACKAGES.values())}`", pytrace=False)
        from local.engine import install_packages

        install_packages(*PACKAGES.values())
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ARGUMENTS:
        options.add_argument(argument)
    # What a page's policy refused, and errors of its script.
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With both paths given, Selenium has nothing to look for and to download.
    chrome = webdriver.Chrome(options=options, service=Service(executable_path=str(shutil.which("chromedriver"))))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="session")
def page(platform: RunningPlatform, browser: webdriver.Chrome) -> Page:
    """Airflow's pages, as its administrator."""
    page = Page(browser, airflow_url(platform.settings))
    page.log_in(ADMIN, platform.settings.password)
    return page


@pytest.fixture
def pages(page: Page) -> Iterator[Page]:
    """Airflow's pages: light, wide, and in UTC."""
    page.driver.switch_to.default_content()
    # Nothing is drawn there, and the storage is the same.
    page.open("/api/v2/version")
    page.choose_theme("light")
    page.driver.execute_script("localStorage.timezone = JSON.stringify('UTC')")
    page.resize(WIDE)
    page.driver.get_log("browser")
    yield page
    page.driver.execute_script("localStorage.removeItem('theme'); localStorage.removeItem('timezone')")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_source(tmp_path_factory.mktemp("axe"))


@pytest.fixture
def viewer(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The pages of the plugin, as somebody who may read all DAGs."""
    log_in(monkeypatch)
    with TestClient(app) as client:
        yield client


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)


class StoredPage:
    """What the pages of the plugin ask the object store for."""

    def __init__(self, stub: Stubber) -> None:
        self._stub = stub

    def holds(self, key: str, text: str, bucket: str = "skillopt") -> None:
        body = StreamingBody(io.BytesIO(text.encode()), len(text))
        self._stub.add_response("get_object", {"Body": body, "ETag": "1"}, {"Bucket": bucket, "Key": key})

    def holds_report(self, folder: str, text: str, bucket: str = "skillopt") -> None:
        """The report of a run that has ended."""
        seed = Measured(version=0, sha256="", evaluation=Evaluation(scores={}))
        state = seed_state(Moment(kind="final", epoch=1, step=1), seed)
        self.holds(f"{folder}runtime_state.json", state.model_dump_json(), bucket)
        key = f"{folder}report.html"
        listed = {"Contents": [{"Key": key}]}
        self._stub.add_response("list_objects_v2", listed, {"Bucket": bucket, "Prefix": key, "MaxKeys": 1})
        self.holds(key, text, bucket)

    def refuses(self, code: str, status: int) -> None:
        self._stub.add_client_error("get_object", code, http_status_code=status)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredPage]:
    client = boto3.client(
        "s3", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test", endpoint_url="http://s3"
    )
    monkeypatch.setattr(reports, "open_bucket", lambda storage, bucket: ObjectStore(client, bucket))
    with Stubber(client) as stub:
        yield StoredPage(stub)
    client.close()
