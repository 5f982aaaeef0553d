"""The app that serves the pages inside Airflow: rendering, what a page may load, the stylesheet and the script."""

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
"""All that a page or Airflow's navigation loads; a name below /static."""
MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PRIVATE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}
# A report quotes what models wrote: whatever that is, the page loads and runs nothing, and only Airflow frames it.
STORED = PRIVATE | {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'; sandbox"
    )
}
"""Headers of a page that carries all it needs: a run's report, a message."""
LIVE = (
    "default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
)
"""What a page of this app may load: the one script and the one stylesheet. Plots bring their styles along."""
SECONDS_TO_KEEP = 86400
MAX_CHARS = 20_000
"""Characters of one text that a page shows; of a longer one its beginning and its end."""
SAID = {
    401: ("Log in", "This page is for people who are logged in to Airflow."),
    403: ("Not to be seen", "There is no such page, or you may not read the runs of its DAG in Airflow."),
    404: ("No such page", "There is nothing at this address."),
    422: ("No such page", "The address has a value that this page does not understand."),
}
"""What a page says instead of what was asked for."""

# Airflow does not ask for a login before an app of a plugin: the schema's own pages would be open to anyone.
app = FastAPI(title="SkillOpt", openapi_url=None)


def dag_run_tab(name: str, route: str) -> dict[str, str]:
    """Return a tab of a DAG run, which Airflow shows on those of every DAG.

    `route` is that of its page below the plugin's prefix, with `dag_id` and `run_id` to be filled in.
    """
    path = route.format(dag_id="{DAG_ID}", run_id="{RUN_ID}")
    return {
        "name": name,
        "destination": "dag_run",
        "url_route": f"skillopt-{route.rpartition('/')[2]}",
        # Without a slash in front, a browser reads it below the path that the API server itself is at.
        "href": f"{UI_PREFIX.removeprefix('/')}{path}",
    }


def page(request: Request, template: str, *, plots: bool = False, **values: Any) -> HTMLResponse:
    """Render a template of ui/templates that extends base.html; `plots` where it embeds SVG of matplotlib.

    Besides the values it has `up`, what an address begins with that leads to another page of this app, and `airflow`,
    what one begins with that leads to Airflow's own. Both are relative, so they hold below any base path.
    """
    up = "../" * (request.scope["route"].path.count("/") - 1)
    text = _environment().get_template(template).render(
        up=up, airflow=up + "../" * UI_PREFIX.count("/"), version=_version(), **values
    )  # fmt: skip
    styles = "'self' 'unsafe-inline'" if plots else "'self'"
    return HTMLResponse(text, headers=PRIVATE | {"Content-Security-Policy": LIVE.format(styles=styles)})


def message_page(status: int, title: str, text: str) -> HTMLResponse:
    body = _environment().get_template("message.html").render(title=title, text=shortened(text, MAX_CHARS))
    return HTMLResponse(body, status_code=status, headers=STORED)


@app.get("/static/{name}")
def static(name: str) -> FileResponse:
    """Return the stylesheet, the script or an icon; they hold nothing of anybody, so no login is asked for.

    Raises:
        HTTPException: 404, there is no other file.
    """
    if name not in STATIC:
        raise HTTPException(404)
    path = STATIC[name]
    headers = {"Cache-Control": f"public, max-age={SECONDS_TO_KEEP}", "X-Content-Type-Options": "nosniff"}
    return FileResponse(path, media_type=MEDIA[path.suffix], headers=headers)


@app.exception_handler(HTTPException)
@app.exception_handler(404)
@app.exception_handler(RequestValidationError)
def refused(_: Request, error: Exception) -> HTMLResponse:
    """Say as a page what FastAPI would say as JSON."""
    status = getattr(error, "status_code", 422)
    title, text = SAID.get(status, ("No such page", f"Airflow answers with status {status}."))
    return message_page(status, title, text)


@app.exception_handler(SkillOptError)
@app.exception_handler(AirflowException)
def unreadable(_: Request, error: Exception) -> HTMLResponse:
    """Say as a page what cannot be read, such as an object store that does not answer, and what to do."""
    return message_page(502, "This page cannot be read", str(error))


def moment(value: datetime | str) -> Markup:
    """Show a moment (ISO 8601 if a text) in UTC; the script shows it in the zone that the viewer chose in Airflow."""
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    shown = f"{when:%Y-%m-%d %H:%M} UTC"
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(timespec="seconds"), shown)


def count(value: int) -> str:
    return f"{value:,d}"


@cache
def _environment() -> Environment:
    environment = html_environment(kept="\t\n", folders=[HERE / "templates"])
    environment.globals["most_chars"] = MAX_CHARS
    environment.filters |= {"moment": moment, "count": count, "shortened": shortened}
    return environment


@cache
def _version() -> str:
    """Return what tells these files from those of another release, for the browser's cache."""
    return sha256(b"".join(path.read_bytes() for path in STATIC.values())).hexdigest()[:12]
