"""Which brokers are alive, by their heartbeats. No sockets; the clock is an argument.

Each controller has its own table, in memory. A broker is dead in two cases: its last heartbeat is
older than the timeout in it, or its connection has been closed for `CLOSED_MS`. The closed
connection reveals a killed process, the timeout a machine without power.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

CLOSED_MS = 1_000  # from the end of a connection until its broker counts as dead
TIMEOUT_MS = 10_000  # default, for heartbeats without a timeout
TIMEOUT_MS_MAX = 3_600_000
BROKERS_MAX = 20_000
NEVER = -1
PRIORITY_LAST = (1 << 31) - 1

Key = tuple[str, str, int]  # cluster, broker name, id


class Position(NamedTuple):
    """The state of a broker's log, from its last heartbeats."""

    epoch: int
    max_offset: int
    priority: int


class _Live:
    """One broker that has sent a heartbeat."""

    __slots__ = ("address", "closed_ms", "connection", "heard_ms", "position", "timeout_ms")

    def __init__(self, address: str, connection: Hashable, position: Position) -> None:
        self.address = address
        self.connection = connection
        self.position = position
        self.heard_ms = 0
        self.timeout_ms = TIMEOUT_MS
        self.closed_ms = NEVER


class LiveBrokers:
    """The brokers that have sent heartbeats to this controller.

    `now_ms` is a monotonic clock. A new leader may have missed heartbeats: until a broker's timeout
    after `begin`, silence does not make it dead; a closed connection does.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._brokers: dict[Key, _Live] = {}
        self._begun_ms = now_ms()

    def __len__(self) -> int:
        return len(self._brokers)

    def begin(self) -> None:
        """Note that this controller leads from now on."""
        self._begun_ms = self._now_ms()

    def heard(
        self,
        key: Key,
        address: str,
        connection: Hashable,
        position: Position,
        timeout_ms: int | None,
    ) -> bool:
        """Note a heartbeat; False when the table is full and lacks the broker."""
        found = self._brokers.get(key)
        if found is None:
            if len(self._brokers) >= BROKERS_MAX:
                return False
            found = self._brokers[key] = _Live(address, connection, position)
        is_new_connection = found.connection != connection
        found.address = address
        found.connection = connection
        found.closed_ms = NEVER
        found.heard_ms = self._now_ms()
        if timeout_ms is not None:
            found.timeout_ms = min(max(1, timeout_ms), TIMEOUT_MS_MAX)
        # A log never gets shorter within an epoch while its broker runs, so a late heartbeat does
        # not lower the offset. What a broker that came back has lost counts.
        if is_new_connection or position[:2] > found.position[:2]:
            found.position = position
        else:
            found.position = found.position._replace(priority=position.priority)
        return True

    def lost(self, connection: Hashable) -> list[Key]:
        """Note that a connection ended; returns the brokers that sent heartbeats on it."""
        keys = [key for key, one in self._brokers.items() if one.connection == connection]
        for key in keys:
            self._brokers[key].closed_ms = self._now_ms()
        return keys

    def is_alive(self, key: Key) -> bool:
        """True if the broker's last heartbeat is still valid."""
        found = self._brokers.get(key)
        return found is not None and not self._is_over(found)

    def is_dead(self, key: Key) -> bool:
        """True if the broker is known to be dead; if never heard, `TIMEOUT_MS` after `begin`."""
        led_ms, found = self._now_ms() - self._begun_ms, self._brokers.get(key)
        if found is None:
            return led_ms > TIMEOUT_MS
        if self._is_closed(found):
            return True
        return self._is_over(found) and led_ms > found.timeout_ms

    def address(self, key: Key) -> str | None:
        """The address of a live broker, from its last heartbeat; None for any other."""
        found = self._brokers.get(key)
        return None if found is None or self._is_over(found) else found.address

    def position(self, key: Key) -> Position:
        """The position of its log; lower than every other for a broker without a heartbeat."""
        found = self._brokers.get(key)
        return Position(NEVER, NEVER, PRIORITY_LAST) if found is None else found.position

    def alive(self) -> Iterator[Key]:
        """All brokers that are alive."""
        return (key for key, one in self._brokers.items() if not self._is_over(one))

    def forget_dead(self) -> None:
        """Drop the dead brokers whose last heartbeat is older than `TIMEOUT_MS_MAX`."""
        now = self._now_ms()
        for key, one in list(self._brokers.items()):
            if self._is_over(one) and now - one.heard_ms > TIMEOUT_MS_MAX:
                del self._brokers[key]

    def _is_over(self, one: _Live) -> bool:
        return self._is_closed(one) or self._now_ms() - one.heard_ms > one.timeout_ms

    def _is_closed(self, one: _Live) -> bool:
        return one.closed_ms != NEVER and self._now_ms() - one.closed_ms >= CLOSED_MS
