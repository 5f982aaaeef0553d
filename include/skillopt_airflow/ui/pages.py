"""The web app inside Airflow: rendering, security headers, static files, and error pages."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowException
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse
from jinja2 import Environment
from markupsafe import Markup

from skillopt_airflow.core.errors import SkillOptError
from skillopt_airflow.core.values.text import shortened
from skillopt_airflow.pipeline.tasks.addresses import UI_PREFIX
from skillopt_airflow.report.html_pages import STYLESHEET, html_environment

HERE = Path(__file__).parent
STATIC: Mapping[str, Path] = {
    "pages.css": STYLESHEET,
    "pages.js": HERE / "static" / "pages.js",
    "skills.svg": HERE / "static" / "skills.svg",
    "skills-dark.svg": HERE / "static" / "skills-dark.svg",
}
"""Files by their name below /static."""
MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PRIVATE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "private, no-store"}
# A report quotes model output, so the page loads and runs nothing, and only Airflow can frame it.
STORED = PRIVATE | {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'; sandbox"
    )
}
"""Headers of self-contained pages: stored reports and messages."""
LIVE = (
    "default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
"""Policy of the other pages: one script, one stylesheet, and inline styles for plots."""
STATIC_MAX_AGE = 86400
MAX_CHARS = 20_000
"""Longest text shown in full; a longer one is cut in the middle."""
ERROR_PAGES = {
    401: ("Login required", "Log in to Airflow to see this page."),
    403: (
        "Access denied",
        "This page doesn't exist, or you have no permission to read the runs of its DAG in Airflow.",
    ),
    404: ("No such page", "This URL has no page."),
    422: ("No such page", "The URL has a value that this page does not understand."),
}
"""Title and text by status."""

# Airflow requires no login for apps of plugins, so the OpenAPI pages would be public.
app = FastAPI(title="SkillOpt", openapi_url=None)


def dag_run_tab(name: str, route: str) -> dict[str, str]:
    """Return a tab that Airflow shows on the runs of every DAG.

    `route` is below the plugin's prefix and has the placeholders `dag_id` and `run_id`.
    """
    path = route.format(dag_id="{DAG_ID}", run_id="{RUN_ID}")
    return {
        "name": name,
        "destination": "dag_run",
        "url_route": f"skillopt-{route.rpartition('/')[2]}",
        # No leading slash, so that browsers resolve it below the API server's base path.
        "href": f"{UI_PREFIX.removeprefix('/')}{path}",
    }


def page(request: Request, template: str, *, plots: bool = False, **values: Any) -> HTMLResponse:
    """Render a template of ui/templates that extends base.html; set `plots` if it embeds Matplotlib SVGs.

    Templates also get the relative URL prefixes `up` (this app) and `airflow` (Airflow's pages).
    """
    up = "../" * (request.scope["route"].path.count("/") - 1)
    text = _environment().get_template(template).render(
        up=up, airflow=up + "../" * UI_PREFIX.count("/"), version=_version(), **values
    )  # fmt: skip
    styles = "'self' 'unsafe-inline'" if plots else "'self'"
    return HTMLResponse(text, headers=PRIVATE | {"Content-Security-Policy": LIVE.format(styles=styles)})


def paged(rows: Any, number: int, size: int) -> tuple[Any, int, int]:
    """Return a page's rows, its number (from 1; larger ones mean the last page), and the last page's number."""
    last = max(1, math.ceil(len(rows) / size))
    number = min(number, last)
    return rows[(number - 1) * size : number * size], number, last


def message_page(status: int, title: str, text: str) -> HTMLResponse:
    body = _environment().get_template("message.html").render(title=title, text=shortened(text, MAX_CHARS))
    return HTMLResponse(body, status_code=status, headers=STORED)


@app.get("/static/{name}")
def static(name: str) -> FileResponse:
    """Serve the stylesheet, the script, and the icons without a login; they are public."""
    if name not in STATIC:
        raise HTTPException(404)
    path = STATIC[name]
    headers = {"Cache-Control": f"public, max-age={STATIC_MAX_AGE}", "X-Content-Type-Options": "nosniff"}
    return FileResponse(path, media_type=MEDIA[path.suffix], headers=headers)


@app.exception_handler(HTTPException)
@app.exception_handler(404)
@app.exception_handler(RequestValidationError)
def error_page(_: Request, error: Exception) -> HTMLResponse:
    status = getattr(error, "status_code", 422)
    title, text = ERROR_PAGES.get(status, ("No such page", f"Airflow returns the status {status}."))
    return message_page(status, title, text)


@app.exception_handler(SkillOptError)
@app.exception_handler(AirflowException)
def unreadable_page(_: Request, error: Exception) -> HTMLResponse:
    return message_page(502, "Page not available", str(error))


def timestamp(value: datetime | str) -> Markup:
    """Format a time (ISO 8601 if a string) in UTC; the script converts it to the time zone chosen in Airflow."""
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    shown = f"{when:%Y-%m-%d %H:%M} UTC"
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(timespec="seconds"), shown)


def count(value: int) -> str:
    return f"{value:,d}"


@cache
def _environment() -> Environment:
    environment = html_environment("\t\n", HERE / "templates")
    environment.globals["max_chars"] = MAX_CHARS
    environment.filters |= {"timestamp": timestamp, "count": count, "shortened": shortened}
    return environment


@cache
def _version() -> str:
    """Return a hash of the static files, so that browsers reload them after an upgrade."""
    return sha256(b"".join(path.read_bytes() for path in STATIC.values())).hexdigest()[:12]
