from pathlib import Path

import pytest

from local.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A platform's folder with settings, before the first start."""
    home = Home.at(tmp_path / "a home")
    home.prepare()
    home.read_or_choose()
    return home
