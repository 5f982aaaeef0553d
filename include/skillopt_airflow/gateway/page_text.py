"""The text of a page, made in a process with limits: what a stranger's server sends is not to be trusted.

`python -m skillopt_airflow.gateway.page_text TYPE CHARSET CHARACTERS` is that process. It reads a page from standard
input and writes its text.
"""

import os
import resource
import sys

HTML = ("text/html", "application/xhtml+xml")
PLAIN = "text/plain"
MEMORY_BYTES = 1024 * 1024 * 1024
"""Limit of the address space."""
CPU_SECONDS = 10
WALL_SECONDS = 20
PACKAGES = __file__.rpartition("/skillopt_airflow/")[0]


async def text_of_page(body: bytes, media_type: str, charset: str, characters: int) -> str | None:
    """Return the first characters of a page's text; None if the process does not survive the page.

    Raises:
        OSError: the process cannot be started.
    """
    import asyncio

    return await asyncio.to_thread(_in_a_process, body, [media_type, charset, str(characters)])


def _in_a_process(body: bytes, arguments: list[str]) -> str | None:
    import subprocess

    # Nothing of this process's environment, which holds credentials; -P keeps the working folder off the import path.
    env = {"PATH": os.defpath, "PYTHONPATH": PACKAGES, "LANG": "C.UTF-8"}
    command = [sys.executable, "-P", "-m", "skillopt_airflow.gateway.page_text", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - its arguments are no program's, and no shell reads them
            command, input=body, capture_output=True, env=env, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def main() -> None:
    """Write the text of the page in standard input."""
    media_type, charset, characters = sys.argv[1:]
    body = sys.stdin.buffer.read()
    _limit()
    text = _decoded(body, charset) if media_type == PLAIN else _text_of_html(body, charset)
    kept = "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
    sys.stdout.buffer.write(kept[: int(characters)].encode(errors="replace"))


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset or "utf-8", errors="replace")
    except LookupError:
        return body.decode(errors="replace")


def _text_of_html(body: bytes, charset: str) -> str:
    from inscriptis.html_engine import Inscriptis
    from lxml.etree import ParserError
    from lxml.html import HTMLParser, document_fromstring

    try:
        # Where the header names no charset, or one that nobody knows, the parser looks for it in the page.
        parser = HTMLParser(encoding=charset or None)
    except LookupError:
        parser = HTMLParser()
    try:
        return str(Inscriptis(document_fromstring(body, parser)).get_text())
    except ParserError:
        # There is nothing in it.
        return ""


def _limit() -> None:
    """Lower this process's limits, for good; root is not bound by that of processes."""
    for which, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(which)
        resource.setrlimit(which, (most, most) if hard == resource.RLIM_INFINITY else (min(most, hard), hard))


if __name__ == "__main__":
    main()
