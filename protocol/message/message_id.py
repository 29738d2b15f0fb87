"""The two ids of a message: where it lies, and which one it is.

The offset message id is upper-case hex of the broker's ip and port and of the commit log offset.
The unique id (property UNIQ_KEY) is made by the sender: ip, pid (2 bytes), a number of the maker's
own (4), milliseconds since the month began in local time (4), a counter (2).
"""

import itertools
import os
import random
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

IPV4_ID_CHARS = 32
IPV6_ID_CHARS = 56
PORT_BYTES = 4
OFFSET_BYTES = 8


def offset_message_id(host: bytes, log_offset: int) -> str:
    """The id of the record at this commit log offset; `host` is ip and port, 8 or 20 bytes."""
    return f"{host.hex().upper()}{log_offset:016X}"


def parse_offset_message_id(text: str) -> tuple[bytes, int]:
    """Host (8 or 20 bytes) and commit log offset that an offset message id stands for.

    ValueError when it is not 32 or 56 hexadecimal digits.
    """
    if len(text) not in (IPV4_ID_CHARS, IPV6_ID_CHARS):
        raise ValueError(
            f"message id {text[:64]!r} has {len(text)} characters; an offset message id has "
            f"{IPV4_ID_CHARS}, or {IPV6_ID_CHARS} with an IPv6 host"
        )
    try:
        data = bytes.fromhex(text) if text.isalnum() else b""
    except ValueError:
        data = b""
    if not data:
        raise ValueError(f"message id {text!r} is not made of hexadecimal digits only")
    offset = int.from_bytes(data[-OFFSET_BYTES:], "big", signed=True)
    return data[:-OFFSET_BYTES], offset


def host_text(host: bytes) -> str:
    """A host as records have it, in 8 or 20 bytes, as "ip:port"."""
    ip, port = host[:-PORT_BYTES], int.from_bytes(host[-PORT_BYTES:], "big")
    if len(ip) == 4:
        return f"{IPv4Address(ip)}:{port}"
    found = IPv6Address(ip)
    # As the system writes it, and so all others do.
    return f"[{f'::ffff:{found.ipv4_mapped}' if found.ipv4_mapped else found}]:{port}"


class UniqueIds:
    """Makes UNIQ_KEYs as Java does: 32 characters with an IPv4 host, 56 with IPv6.

    `instance` keeps two makers in one process apart; by default it is drawn at random.
    """

    __slots__ = (
        "_counter",
        "_month_end_ms",
        "_month_start_ms",
        "_now_ms",
        "_now_text",
        "_prefix",
        "_text_ms",
    )

    def __init__(
        self,
        host: bytes,
        now_ms: Callable[[], int],
        pid: int | None = None,
        instance: int | None = None,
    ) -> None:
        """`host` is ip and port (8 or 20 bytes), of which the ip is used."""
        number = os.getpid() if pid is None else pid
        own = random.getrandbits(32) if instance is None else instance & 0xFFFFFFFF
        self._prefix = f"{host[:-PORT_BYTES].hex().upper()}{number & 0xFFFF:04X}{own:08X}"
        self._now_ms = now_ms
        self._counter = itertools.count()
        self._month_start_ms = self._month_end_ms = 0
        self._now_text, self._text_ms = "", -1  # what the ids of one ms begin with

    def next(self) -> str:
        """The next id."""
        return self.at(self._now_ms())

    def at(self, now_ms: int) -> str:
        """The next id, for a time in ms that the caller knows."""
        if now_ms != self._text_ms:
            if not self._month_start_ms <= now_ms < self._month_end_ms:
                self._month_start_ms, self._month_end_ms = _month(now_ms)
            passed = now_ms - self._month_start_ms
            self._now_text = f"{self._prefix}{passed & 0xFFFFFFFF:08X}"
            self._text_ms = now_ms
        return f"{self._now_text}{next(self._counter) & 0xFFFF:04X}"


def _month(now_ms: int) -> tuple[int, int]:
    """Start and end in ms, by the local calendar, of the month in which `now_ms` lies."""
    now = time.localtime(now_ms / 1000)
    start, end = (
        int(time.mktime((now.tm_year, now.tm_mon + step, 1, 0, 0, 0, 0, 0, -1))) * 1000
        for step in (0, 1)
    )
    return start, end
