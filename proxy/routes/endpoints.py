"""Endpoints: where the proxy tells its clients to go, which is what they dialled."""

import ipaddress
from typing import Any

from ..messages import definitions

Endpoints = definitions.message("Endpoints")
_SCHEMES = definitions.enum("AddressScheme")


def dialled(given: Any, authority: str, local: tuple[str, int], port: int | None) -> Any:
    """The endpoints of a route.

    `given` are those of the request, which say what the client dialled; without them it is the
    call's :authority, and without that our end of the connection. `port`, if not None, replaces
    theirs.
    """
    found = Endpoints()
    if given.addresses:
        found.CopyFrom(given)
    else:
        host, own_port = _split(authority) if authority else local
        address = found.addresses.add()
        address.host, address.port = host, own_port or local[1]
        found.scheme = scheme_of(host)
    if port is not None:
        for address in found.addresses:
            address.port = port
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
