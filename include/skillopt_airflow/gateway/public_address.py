"""The addresses of the network that a page may come from: those that anybody on the internet can reach."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

PORTS = (80, 443)
"""Ports of the web; a request elsewhere may mean something to another kind of server."""
_UNICAST = IPv6Network("2000::/3")
_TUNNELS = (IPv6Network("2002::/16"), IPv6Network("2001::/32"))
"""6to4 and Teredo: an IPv4 address inside of them is where packets really go."""
_CLOUDS = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
"""Azure's server of a virtual machine's settings and keys, and where Oracle's was: of the internet by their numbers."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host; raise OSError if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def why_refused(address: str, port: int) -> str:
    """Return why no page may come from an address; empty if one may."""
    if port not in PORTS:
        return f"its port is {port}, and pages come from {' and '.join(map(str, PORTS))} alone"
    return "" if is_public(address) else "it leads to an address that is not public"


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the internet's, and of a single host."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if not isinstance(found, IPv4Address):
        if found.ipv4_mapped is None:
            return found in _UNICAST and found.is_global and not any(found in one for one in _TUNNELS)
        found = found.ipv4_mapped
    return found.is_global and not (found.is_multicast or found.is_reserved or any(found in one for one in _CLOUDS))
