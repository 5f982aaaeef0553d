from pathlib import Path
from threading import Event

import pytest

from local import modelserver, services
from local.home import PROJECT, Home


def test_what_the_benchmarks_teach_the_stand_in_starts_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[services.Service] = []
    monkeypatch.setattr(services, "ensure", lambda home, service, *_: asked.append(service))
    home = Home.at(tmp_path)
    modelserver.ensure(home, home.read_or_choose(), {}, Event())
    sources = {str(path.relative_to(PROJECT)) for path in asked[0].sources}
    assert sources >= {"requirements-local.txt", "include", "local/standin"}
    assert not [path for path in sources if "searchqa" in path]
