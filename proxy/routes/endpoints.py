"""Endpoints: where the proxy tells its clients to go, which is what they dialled."""

import ipaddress
from typing import Any

from ..messages import definitions

Endpoints = definitions.message("Endpoints")
_SCHEMES = definitions.enum("AddressScheme")


def dialled(given: Any, authority: str, local: tuple[str, int], port: int | None) -> Any:
    """The endpoints of a route.

    `given` are those of the request, which say what the client dialled; without them, or without a
    port in them, it is the call's :authority, and without that our end of the connection. `port`,
    if not None, replaces theirs.
    """
    found = Endpoints()
    host, dialled_port = _split(authority) if authority else local
    if given.addresses:
        found.CopyFrom(given)
    else:
        found.addresses.add(host=host)
        found.scheme = scheme_of(host)
    for address in found.addresses:
        address.port = (address.port or dialled_port or local[1]) if port is None else port
    return found


def scheme_of(host: str) -> int:
    """The scheme of a host by its text."""
    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return _SCHEMES["DOMAIN_NAME"]
    return _SCHEMES["IPv4" if version == 4 else "IPv6"]


def _split(authority: str) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if colon and port.isdecimal() and not host.endswith(":") and len(port) < 6:
        return host.strip("[]"), int(port)
    return authority.strip("[]"), 0
