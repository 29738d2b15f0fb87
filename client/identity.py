"""Who we are to brokers: the ip that others see, client ids, and message ids that nobody repeats.

These are the only places in the client that look at the clock, the pid and randomness for a name.
"""

import itertools
import os
import secrets
import socket
import time

OUTSIDE = ("192.0.2.1", 9)  # an address kept for documentation; nothing is ever sent to it
LOOPBACK = "127.0.0.1"


def own_ip() -> str:
    """The ip that this machine uses towards other ones; 127.0.0.1 when it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(OUTSIDE)  # chooses an interface, sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK


def new_client_id(ip: str | None = None) -> str:
    """A client id as Java makes one: ip@pid#ns."""
    return f"{ip or own_ip()}@{os.getpid()}#{time.time_ns()}"


class UniqueIds:
    """Makes UNIQ_KEYs as Java does: 16 bytes in hex.

    ip, pid (2 bytes), a number drawn at random (4), ms since the month began in local time (4), a
    counter (2). The random number keeps two makers in one process apart.
    """

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix")

    def __init__(self, ip: str | None = None) -> None:
        packed = socket.inet_aton(ip or own_ip())
        pid = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._prefix = (packed + pid + secrets.token_bytes(4)).hex().upper()
        self._counter = itertools.count(secrets.randbelow(1 << 16)).__next__
        self._month_start_ms = self._month_end_ms = 0

    def make(self, now_ms: int) -> str:
        """The next id; `now_ms` since the epoch."""
        if now_ms >= self._month_end_ms or now_ms < self._month_start_ms:
            self._month_start_ms, self._month_end_ms = _month(now_ms)
        passed = now_ms - self._month_start_ms
        return f"{self._prefix}{passed & 0xFFFFFFFF:08X}{self._counter() & 0xFFFF:04X}"


def _month(now_ms: int) -> tuple[int, int]:
    now = time.localtime(now_ms / 1000)
    bounds = [
        int(time.mktime((now.tm_year, now.tm_mon + step, 1, 0, 0, 0, 0, 0, -1))) * 1000
        for step in (0, 1)
    ]
    return bounds[0], bounds[1]
