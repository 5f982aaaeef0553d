"""Which of Airflow's official providers install next to this package, by uv's resolver."""

import subprocess

from uv import find_uv_bin

from bench import tables
from local.home import PROJECT

PREFIX = "apache-airflow-providers-"
OF_THE_IMAGE = (
    *("amazon", "celery", "cncf-kubernetes", "common-ai", "common-io", "common-messaging", "common-sql", "docker"),
    *("elasticsearch", "fab", "ftp", "git", "google", "grpc", "hashicorp", "http", "microsoft-azure", "mysql", "odbc"),
    *("openlineage", "postgres", "redis", "sendgrid", "sftp", "slack", "smtp", "snowflake", "ssh", "standard"),
)
"""The providers of Airflow's official image, with common-ai, which this package needs."""
NOTE = (
    "What uv resolves for this package with all its extras and one provider of Airflow's official image, on Python "
    "3.11. The newest release is what PyPI has. An older one is what the resolver falls back to."
)


def measure() -> None:
    """Write the table."""
    rows = [_row(name) for name in OF_THE_IMAGE]
    rows.append(("all of them together", "", "yes" if _resolved(*OF_THE_IMAGE) else "no", ""))
    tables.write("providers", "Providers next to this package", NOTE, ("provider", "newest", "fits", "resolved"), rows)


def _row(name: str) -> tuple[str, str, str, str]:
    newest, found = _compiled(PREFIX + name, "-").get(name, ""), _resolved(name).get(name, "")
    return name, newest, "yes" if found == newest else "an older one" if found else "no", found


def _resolved(*names: str) -> dict[str, str]:
    """Return the versions of providers next to this package, by name; empty if there is no solution."""
    wanted = "\n".join(PREFIX + name for name in names)
    return _compiled(wanted, "--all-extras", str(PROJECT / "pyproject.toml"), "-")


def _compiled(requirements: str, *options: str) -> dict[str, str]:
    command = [find_uv_bin(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", "3.11"]
    done = subprocess.run([*command, *options], input=requirements, capture_output=True, text=True, check=False)
    found = (line.partition("==") for line in done.stdout.splitlines() if line.startswith(PREFIX))
    return {name.removeprefix(PREFIX).partition("[")[0]: version for name, _, version in found}
