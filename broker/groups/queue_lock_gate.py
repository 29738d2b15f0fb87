"""Only one broker of a name locks queues for consumers.

A consumer goes on with a queue for 30 s after its lock was renewed. So a broker that becomes the
one to lock queues gives no lock until each lock of the broker before it has ended, or until that
broker has handed its locks over. Closed, it refuses: a consumer goes on with a lock that it has,
which an answer without the queue would end.
"""

from collections.abc import Callable
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import Command
from ...protocol.errors import Refusal

# rocketmq.client.rebalance.lockMaxLiveTime, and a second: it counts from the answer's arrival.
CLIENT_LOCK_MS = 31_000


class QueueLockGate:
    """Closed at first. `now_ms` is a clock for timeouts."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._from_ms: int | None = None  # when the first lock may be given

    @property
    def is_opening(self) -> bool:
        """Whether locks are given, now or soon."""
        return self._from_ms is not None

    @property
    def is_open(self) -> bool:
        """Whether locks are given."""
        return self._from_ms is not None and self._now_ms() >= self._from_ms

    def open(self, *, after_ms: int = CLIENT_LOCK_MS) -> None:
        """Give locks after this time; a gate that opens already keeps its time."""
        if self._from_ms is None:
            self._from_ms = self._now_ms() + after_ms

    def close(self) -> None:
        """Give no locks: another broker does."""
        self._from_ms = None

    def guarded(self, row: Row) -> Row:
        """The row of LOCK_BATCH_MQ behind this gate: closed, it is refused, and the consumer tries
        again."""
        handler = row.handler

        def lock(header: Any, command: Command, connection: Connection) -> Any:
            if self.is_open:
                return handler(header, command, connection)
            raise Refusal(codes.SERVICE_NOT_AVAILABLE, self._why())

        return Row(row.code, row.header, lock, row.access, row.hot, row.bulk)

    def _why(self) -> str:
        if self._from_ms is None:
            return "this broker gives no locks, another broker of its name does; ask that one"
        return (
            "this broker gives no locks yet: consumers may have locks of the broker before it, "
            f"which end in {self._from_ms - self._now_ms()} ms at the latest; ask again"
        )
