import os
import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PACKAGES = {"chromium": "chromium", "chromedriver": "chromium-driver"}
"""The programs, and which packages of Debian have them."""
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    # Shared memory is small in containers.
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
)


@pytest.fixture(scope="module")
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
    # With both paths given, Selenium has nothing to look for and to download.
    chrome = webdriver.Chrome(options=options, service=Service(executable_path=str(shutil.which("chromedriver"))))
    yield chrome
    chrome.quit()
