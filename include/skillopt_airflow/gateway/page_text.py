"""The text of a page, made in a process with limits: what a stranger's server sends is not to be trusted."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from skillopt_airflow.core.errors import ProcessLost
from skillopt_airflow.limited_process import AT_ONCE, LimitedProcess, Limits

HTML = ("text/html", "application/xhtml+xml")
PLAIN = "text/plain"
LIMITS = Limits(megabytes=512, cpu_seconds=10, wall_seconds=20)
_readers = ThreadPoolExecutor(AT_ONCE, "page_text")
"""Not the event loop's own threads, in which the gateway reads its budget."""


async def text_of_page(body: bytes, media_type: str, charset: str, characters: int) -> str | None:
    """Return the first characters of a page's text; None if the process does not survive the page."""
    arguments = (media_type, charset, str(characters))
    return await asyncio.get_running_loop().run_in_executor(_readers, _in_a_process, body, arguments)


def _in_a_process(body: bytes, arguments: tuple[str, ...]) -> str | None:
    with LimitedProcess("skillopt_airflow.gateway.page_text:text_of", LIMITS) as process:
        try:
            return process.call(body, *arguments).decode()
        except ProcessLost:
            return None


def text_of(body: bytes, media_type: str, charset: str, characters: str) -> bytes:
    """Return the first characters of a page's text, in UTF-8."""
    text = _decoded(body, charset) if media_type == PLAIN else _text_of_html(body, charset)
    kept = "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
    return kept[: int(characters)].encode(errors="replace")


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
