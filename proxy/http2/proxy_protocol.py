"""The PROXY protocol, versions 1 and 2: a load balancer says whose connection it passes on.

The header is taken from listed addresses only, because any peer could write it; from these each
connection must begin with one. The address in it becomes the client's.
"""

import asyncio
import ipaddress
import logging
from dataclasses import dataclass
from struct import Struct
from typing import cast

from .connection import Http2Connection

log = logging.getLogger(__name__)

BYTES_MAX = 4_096  # of a header, with what a load balancer adds to it
_LINE_BYTES_MAX = 107  # of version 1
_LINE = b"PROXY "
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD = Struct(">BBH")  # version and command, family and protocol, bytes that follow
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_PORTS = Struct(">HH")

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


class HeaderError(ValueError):
    """The bytes are no header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A header: its bytes, and the client's host and port, None when it is the load balancer's own
    connection."""

    size: int
    client: tuple[str, int] | None


def read(data: bytes) -> Passed | None:
    """The header at the start; None while it isn't whole. HeaderError when there is none."""
    if data.startswith(_SIGNATURE):
        return _version_2(data)
    if data.startswith(_LINE):
        return _version_1(data)
    if _SIGNATURE.startswith(data) or _LINE.startswith(data):
        return None
    raise HeaderError(f"it begins with {data[:12]!r}")


def _version_1(data: bytes) -> Passed | None:
    end = data.find(b"\r\n", 0, _LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= _LINE_BYTES_MAX:
            raise HeaderError(f"its line has more than {_LINE_BYTES_MAX} bytes")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return Passed(end + 2, None)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise HeaderError(f"its line is {data[:end]!r}")
    _, family, source, _, port, _ = words
    try:
        address = ipaddress.ip_address(source)
    except ValueError as wrong:
        raise HeaderError(str(wrong)) from None
    if f"TCP{address.version}" != family or not (port.isascii() and port.isdigit()):
        raise HeaderError(f"its line is {data[:end]!r}")
    number = int(port[:6])
    if number > 65_535:
        raise HeaderError(f"its port is {number}")
    return Passed(end + 2, (str(address), number))


def _version_2(data: bytes) -> Passed | None:
    at = len(_SIGNATURE)
    if len(data) < at + _HEAD.size:
        return None
    command, family, size = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    if at + size > BYTES_MAX:
        raise HeaderError(f"it has {at + size} bytes, the limit is {BYTES_MAX}")
    if command not in (_LOCAL, _PROXY):
        raise HeaderError(f"its version and command are {command:#x}")
    if len(data) < at + size:
        return None
    width = {_TCP4: 4, _TCP6: 16}.get(family)
    if command == _LOCAL or width is None:
        return Passed(at + size, None)
    if size < 2 * width + _PORTS.size:
        raise HeaderError(f"its addresses have {size} bytes, {2 * width + _PORTS.size} are needed")
    source = ipaddress.ip_address(data[at : at + width])
    port, _ = _PORTS.unpack_from(data, at + 2 * width)
    return Passed(at + size, (str(source), port))


class Preamble(asyncio.Protocol):
    """A connection before its header. `following` is the protocol after it."""

    def __init__(
        self, following: asyncio.Protocol, connection: Http2Connection, listed: Networks
    ) -> None:
        self._following = following
        self._connection = connection
        self._listed = listed
        self._transport: asyncio.Transport | None = None
        self._said = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._following.connection_made(transport)
        if not self._is_listed(self._connection.peer[0]):
            self._transport.set_protocol(self._following)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._said += data
        try:
            found = read(bytes(self._said[: BYTES_MAX + 1]))
        except HeaderError as wrong:
            log.warning(
                "closing %s: it is in proxyProtocolAddresses and begins without a header of the "
                "PROXY protocol: %s; let the load balancer send one, or take it off the list",
                self._connection.address,
                wrong,
            )
            transport.abort()
            return
        if found is None:
            return
        if found.client is not None:
            self._connection.peer = found.client
        transport.set_protocol(self._following)
        rest = bytes(self._said[found.size :])
        if rest:
            self._following.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._following.connection_lost(exc)

    def _is_listed(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:  # a socket without one
            return False
        return any(address in network for network in self._listed)
