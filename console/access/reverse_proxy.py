"""A reverse proxy of the console: its addresses, and the header in which it names visitors.

A proxy that logs visitors in (OIDC, LDAP) sets the header, and takes it out of what visitors send.
"""

import ipaddress
from collections.abc import Iterable

from aiohttp import web

from ..texts import refusal
from .rights import Right

FORWARDED = "X-Forwarded-For"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ReverseProxy:
    """`addresses` are addresses and networks; ValueError for one that is neither. `right` is that
    of visitors by the header where there is no file of users."""

    def __init__(
        self, addresses: Iterable[str], *, header: str = "", right: Right = Right.VIEW
    ) -> None:
        self.header = header
        self.right = right
        self._networks: list[Network] = []
        for text in addresses:
            try:
                self._networks.append(ipaddress.ip_network(text, strict=False))
            except ValueError:
                raise ValueError(
                    f"the proxy's address is {text[:80]!r}; give an IP address, or a network such "
                    "as 10.0.0.0/24"
                ) from None

    def is_proxy(self, address: str) -> bool:
        """True if a connection from this address is the proxy's."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self._networks)

    def check(self, request: web.Request) -> None:
        """HTTPForbidden for a connection that is not the proxy's."""
        if not self.is_proxy(request.remote or ""):
            raise refusal(
                web.HTTPForbidden,
                "this console answers its proxy only, and %(remote)s is not one of "
                "%(networks)s; use the proxy's address, or name this one with --behind-proxy",
                remote=request.remote or "",
                networks=", ".join(map(str, self._networks)),
            )

    def address_of(self, request: web.Request) -> str:
        """The visitor's address, as the proxy gives it; the proxy's own without one."""
        words = ",".join(request.headers.getall(FORWARDED, [])).split(",")
        try:
            return str(ipaddress.ip_address(words[-1].strip()))
        except ValueError:
            return request.remote or ""

    def name_in(self, request: web.Request) -> str:
        """The visitor's name in the header, "" without one."""
        if not self.header or not self.is_proxy(request.remote or ""):
            return ""
        given = request.headers.getall(self.header, [])
        return given[0].strip() if len(given) == 1 else ""
