"""What a browser may do with a page, and which names the console answers to.

The Host list keeps other sites from reaching a console on the loopback by a name that they point
there (DNS rebinding).
"""

import ipaddress
from collections.abc import Iterable

from aiohttp import web

POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def headers(nonce: str) -> dict[str, str]:
    """The headers of every response; `nonce` is that of its scripts."""
    return {**HEADERS, "Content-Security-Policy": POLICY.format(nonce=nonce)}


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to this address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class HostList:
    """The names by which browsers may ask for pages: those of the loopback and `more`."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = {*LOOPBACK_NAMES, *(name.lower() for name in more)}

    def check(self, request: web.Request) -> None:
        """HTTPMisdirectedRequest for another name."""
        given = request.headers.getall("Host", [])
        name = given[0].lower() if len(given) == 1 else ""
        host, colon, port = name.rpartition(":")
        if colon and (port.isdecimal() or not port):
            name = host
        if name not in self._names:
            raise web.HTTPMisdirectedRequest(
                text=f"the console does not answer to this Host; it answers to "
                f"{', '.join(sorted(self._names))}: add yours with --host"
            )
