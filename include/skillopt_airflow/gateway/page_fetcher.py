"""Fetching a page of the web for a sandbox, which names the address: nothing private is reached, nothing is endless."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from ssl import SSLContext
from urllib.parse import urljoin

import httpx

from skillopt_airflow.gateway.page_text import HTML, PLAIN, text_of_page
from skillopt_airflow.gateway.public_address import resolved, why_refused

MOST_REDIRECTS = 5
MAX_ADDRESS_CHARS = 2000
REDIRECTS = (301, 302, 303, 307, 308)
SCHEMES = {"http": 80, "https": 443}
HEADERS = {
    "accept": f"{', '.join(HTML)}, {PLAIN}",
    "accept-encoding": "gzip, deflate",
    "user-agent": "Mozilla/5.0 (compatible; SkillOpt page reader)",
}


class PageRefused(Exception):
    """A page is not fetched, or not read; the text is for whoever asked for it."""


class PageUnreachable(PageRefused):
    """No page came, for a reason that may be gone at another time."""


@dataclass(frozen=True)
class PageFetcher:
    """Fetches pages without cookies, credentials or proxies.

    A name is resolved once, each of its addresses is looked at, and the connection goes to one that was looked at: a
    name that leads elsewhere the next time is never asked for again. Each redirect is a request of its own.
    """

    seconds: float
    """For a page, its redirects included."""
    max_bytes: int
    """Of a page, as it comes and unpacked."""
    characters: int
    """Of a page's text; the rest is left out."""
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] = resolved
    """Returns the addresses of a host."""
    refuse: Callable[[str, int], str] = why_refused
    """Says why an address and port may not be connected to."""
    tls: SSLContext = field(default_factory=httpx.create_ssl_context)

    async def text(self, address: str) -> str:
        """Return the text of a page.

        Raises:
            PageRefused: the address or what is there may not be read.
            PageUnreachable: nothing came, or not in time.
        """
        try:
            async with asyncio.timeout(self.seconds):
                body, media_type, charset = await self._page(address)
        except TimeoutError:
            raise PageUnreachable(f"the page did not come within {self.seconds:g} s") from None
        text = await text_of_page(body, media_type, charset, self.characters)
        if text is None:
            raise PageRefused("the page cannot be turned into text")
        return text if text else "[the page has no text]"

    async def _page(self, address: str) -> tuple[bytes, str, str]:
        """Return the page's bytes, their type and their charset."""
        for _ in range(MOST_REDIRECTS + 1):
            url = _checked(address)
            try:
                async with httpx.AsyncClient(verify=self.tls, trust_env=False, timeout=self.seconds) as client:
                    request = client.build_request("GET", await self._pinned(url), headers=_headers(url))
                    request.extensions |= _name_for_tls(url)
                    response = await client.send(request, stream=True)
                    if response.status_code not in REDIRECTS:
                        return await self._read(response)
                    address = urljoin(str(url), response.headers.get("location", ""))
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                raise PageUnreachable(f"the page did not come: {type(error).__name__}") from error
        raise PageRefused(f"the address leads on more than {MOST_REDIRECTS} times")

    async def _pinned(self, url: httpx.URL) -> httpx.URL:
        """Return the URL with an address that may be connected to in the place of the host."""
        port = SCHEMES[url.scheme] if url.port is None else url.port
        try:
            found = await self.resolve(url.raw_host.decode("ascii"), port)
        except (OSError, UnicodeError):
            raise PageUnreachable(f"there is no host {url.host:.100}") from None
        refusals = [why for address in found if (why := self.refuse(address, port))]
        if refusals or not found:
            raise PageRefused(f"{url.host:.100} cannot be read: {refusals[0] if refusals else 'it has no address'}")
        return url.copy_with(host=found[0])

    async def _read(self, response: httpx.Response) -> tuple[bytes, str, str]:
        if response.status_code != 200:
            kind = PageUnreachable if response.status_code >= 500 or response.status_code == 429 else PageRefused
            raise kind(f"the server answered with status {response.status_code}")
        media_type, _, rest = response.headers.get("content-type", "").lower().partition(";")
        if media_type.strip() not in (*HTML, PLAIN):
            raise PageRefused(f"it is {media_type.strip()[:100] or 'of no type'}, and only HTML and plain text is read")
        body = bytearray()
        async for chunk in self._unpacked(response):
            body += chunk
            if len(body) > self.max_bytes:
                raise PageRefused(f"the page has more than {self.max_bytes} bytes")
        charset = rest.partition("charset=")[2].partition(";")[0].strip("\"' ")
        return bytes(body), media_type.strip(), charset

    async def _unpacked(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the body; of a packed one no more than a byte beyond the limit is ever unpacked."""
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("identity", "gzip", "deflate"):
            raise PageRefused(f"the page is packed as {packed[:100]}")
        # It finds out by itself whether there is a gzip or a zlib header.
        unpacker = None if packed == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
        came = 0
        async for chunk in response.aiter_raw():
            came += len(chunk)
            if came > self.max_bytes:
                raise PageRefused(f"the page has more than {self.max_bytes} bytes")
            try:
                yield chunk if unpacker is None else unpacker.decompress(chunk, self.max_bytes + 1)
            except zlib.error:
                raise PageRefused(f"the page is not {packed}, as it says") from None


def _checked(address: str) -> httpx.URL:
    """Return an address as a URL of the web."""
    if len(address) > MAX_ADDRESS_CHARS:
        raise PageRefused(f"an address may have at most {MAX_ADDRESS_CHARS} characters")
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        raise PageRefused("that is no address of a page") from None
    if url.scheme not in SCHEMES or not url.host:
        raise PageRefused("a page has an address that begins with http:// or https:// and a host")
    if url.userinfo:
        raise PageRefused("an address with a name or password in it is not read")
    return url


def _headers(url: httpx.URL) -> dict[str, str]:
    return {**HEADERS, "host": url.netloc.decode("ascii")}


def _name_for_tls(url: httpx.URL) -> dict[str, str]:
    """Return whose certificate the server has to show; an address in the place of a name shows its own."""
    try:
        ip_address(url.host)
    except ValueError:
        return {"sni_hostname": url.raw_host.decode("ascii")}
    return {}
