"""How often logins may fail: per address and per name, in a sliding time.

A name counts whether or not there is such a user, so that the limit tells nothing about it.
"""

import hashlib
import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable

from ..texts import TextError

SECONDS = 600.0
PER_ADDRESS = 10
PER_NAME = 20
KEYS_MAX = 10_000  # addresses and names; the ones of longest ago are forgotten
WHOLE_NETWORK = 64  # bits of an IPv6 address that count: one host has all others


class TooMany(TextError):
    """Too many logins failed: how many, the limit, and how long to wait (`wait_s`)."""

    status = 429

    def __init__(self, count: int, wait_s: float) -> None:
        super().__init__(
            "%(count)s logins from your address or to this name failed within %(minutes)s "
            "minutes, which is the limit; wait %(wait)s minutes",
            count=count,
            minutes=f"{SECONDS / 60:.0f}",
            wait=f"{wait_s / 60:.0f}",
        )
        self.wait_s = wait_s


class Attempts:
    """`clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def begin(self, address: str, name: str) -> None:
        """Count an attempt as failed; TooMany when there were enough."""
        now = self._clock()
        keys = _keys(address, name)
        for key, limit in keys.items():
            times = self._failed.get(key, deque())
            while times and now - times[0] > SECONDS:
                times.popleft()
            if len(times) >= limit:
                raise TooMany(len(times), max(60.0, times[0] + SECONDS - now))
        for key in keys:
            self._failed.setdefault(key, deque()).append(now)
            self._failed.move_to_end(key)
        while len(self._failed) > KEYS_MAX:
            self._failed.popitem(last=False)

    def succeeded(self, address: str, name: str) -> None:
        """The latest attempt did not fail."""
        for key in _keys(address, name):
            times = self._failed.get(key)
            if times:
                times.pop()
            if not times:
                self._failed.pop(key, None)


def _keys(address: str, name: str) -> dict[tuple[str, str], int]:
    """The keys of an attempt with their limits."""
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()
    return {("from", _network(address)): PER_ADDRESS, ("to", digest): PER_NAME}


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if found.version == 6:
        return str(ipaddress.ip_network((int(found), WHOLE_NETWORK), strict=False))
    return str(found)
