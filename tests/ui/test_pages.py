import html
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from jinja2 import DictLoader

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.ui import pages
from skillopt_airflow.ui.access import readable_benchmarks
from skillopt_airflow.ui.plugin import SkillOptPlugin

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(pages.app) as client:
        yield client


@pytest.mark.parametrize(("name", "media"), [("pages.css", "text/css"), ("pages.js", "text/javascript")])
def test_the_files_that_a_page_loads(client: TestClient, name: str, media: str) -> None:
    answer = client.get(f"/static/{name}")
    assert (answer.status_code, answer.text) == (200, pages.STATIC[name].read_text(encoding="utf-8"))
    assert answer.headers["content-type"].startswith(media)
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["pages.py", "..%2Fpages.py"])
def test_no_other_file_is_served(client: TestClient, name: str) -> None:
    answer = client.get(f"/static/{name}")
    assert answer.status_code == 404
    assert "No such page" in answer.text


@pytest.mark.parametrize("view", SkillOptPlugin.external_views, ids=lambda view: view["name"])
def test_airflow_takes_each_view_and_its_address_is_a_page_s(view: dict[str, Any]) -> None:
    assert ExternalViewResponse.model_validate(view).destination == ("nav" if view["name"] == "Skills" else "dag_run")
    path = view["href"].replace("{DAG_ID}", "{dag_id}").replace("{RUN_ID}", "{run_id}")
    routes = [route.path for route in pages.app.routes if isinstance(route, APIRoute)]
    assert path.removeprefix("skillopt") in routes


def test_what_cannot_be_read_is_named_on_a_page(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (StoreUnavailable("http://<b> did not answer"), AirflowNotFoundException("no connection <b>")):
        monkeypatch.setitem(pages.app.dependency_overrides, readable_benchmarks, partial(fails, error))
        answer = client.get("/skills")
        assert (answer.status_code, html.escape(str(error)) in answer.text) == (502, True)


def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("route", "up"),
    [("/skills", ""), ("/skills/{benchmark}", "../"), ("/dag_runs/{dag_id}/{run_id}/live", "../../../")],
)
def test_addresses_are_relative_to_the_page(monkeypatch: pytest.MonkeyPatch, route: str, up: str) -> None:
    answer = rendered(monkeypatch, "{{ up }}|{{ airflow }}|{{ version }}", route)
    assert answer == f"{up}|{up}../|{pages._version()}"


@pytest.mark.parametrize("plots", [False, True])
def test_a_page_runs_the_one_script_and_loads_from_its_own_server(monkeypatch: pytest.MonkeyPatch, plots: bool) -> None:
    with_template(monkeypatch, "")
    headers = pages.page(request("/skills"), "one.html", plots=plots).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["frame-ancestors"] == "'self'"
    assert ("'unsafe-inline'" in policy["style-src"]) == plots
    assert headers["cache-control"] == "private, no-store"
    assert headers["referrer-policy"] == "no-referrer"


def test_the_frame_of_a_page_has_a_way_past_the_navigation(monkeypatch: pytest.MonkeyPatch) -> None:
    text = rendered(monkeypatch, "{% extends 'base.html' %}{% block title %}{{ what }}{% endblock %}", what=HOSTILE)
    assert "&lt;script&gt;" in text
    assert text.count("<script") == 1
    assert text.index('href="#content"') < text.index("<nav")
    assert '<main id="content"' in text


def test_control_characters_and_turned_directions_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "a\x00\x1b\x7f\x9b\u202eb\u2066c\u200f\ud800\td\n"
    seen = "a\u2400\u241b[U+007F][U+009B][U+202E]b[U+2066]c[U+200F][U+D800]\td\n"
    assert rendered(monkeypatch, "{{ what }}|", what=hostile) == f"{seen}|"


def test_a_moment_is_in_utc_until_the_script_has_run() -> None:
    berlin = datetime(2026, 11, 21, 6, 30, tzinfo=timezone(timedelta(hours=1)))
    shown = '<time datetime="2026-11-21T05:30:00+00:00">2026-11-21 05:30 UTC</time>'
    assert pages.timestamp(berlin) == pages.timestamp("2026-11-21T06:30:00+01:00") == shown
    assert pages.timestamp(datetime(2026, 11, 21, 5, 30)) == pages.timestamp(datetime(2026, 11, 21, 5, 30, tzinfo=UTC))


def test_a_message_says_no_more_than_fits() -> None:
    text = pages.message_page(404, HOSTILE, "x" * 1_000_000).body.decode()
    assert len(text) < 100_000
    assert "characters left out" in text
    assert HOSTILE not in text


def request(route: str) -> Request:
    return Request({"type": "http", "route": type("Route", (), {"path": route})()})


def with_template(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    environment = pages._environment().overlay()
    files = pages._environment().loader
    assert files is not None
    base = files.get_source(environment, "base.html")[0]
    environment.loader = DictLoader({"one.html": text, "base.html": base})
    monkeypatch.setattr(pages, "_environment", lambda: environment)


def rendered(monkeypatch: pytest.MonkeyPatch, text: str, route: str = "/skills", what: str = "") -> str:
    with_template(monkeypatch, text)
    return bytes(pages.page(request(route), "one.html", what=what).body).decode()
