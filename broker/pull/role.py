"""The decisions of a broker's role (brokerRole) about its pulls.

A slave knows only a part of what its master knows: it may be behind, and its log may begin later.
So it never corrects a reader's offset. While the master is up, a pull that finds nothing is sent to
the master, after a moment in which a message may come. Without a master the pull waits here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...protocol import codes
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.route import MASTER_ID
from ...protocol.headers.pull import PullMessage
from ...store.base import status
from ...store.engine.reading import Found
from ..settings.config import BrokerConfig

_CODES = {
    status.MESSAGE_WAS_REMOVING: codes.PULL_RETRY_IMMEDIATELY,
    status.NO_MATCHED_MESSAGE: codes.PULL_RETRY_IMMEDIATELY,
    status.OFFSET_FOUND_NULL: codes.PULL_NOT_FOUND,
    status.OFFSET_OVERFLOW_ONE: codes.PULL_NOT_FOUND,
    status.OFFSET_OVERFLOW_BADLY: codes.PULL_OFFSET_MOVED,
    status.OFFSET_TOO_SMALL: codes.PULL_OFFSET_MOVED,
}


class PullRole(Protocol):
    """The part of pulls that differs between a master and a slave. A miss is a read that found
    no message."""

    @property
    def refusal(self) -> str | None:
        """The reason why no pull is served at this moment; None while pulls are served."""
        ...

    @property
    def ends_long_polls(self) -> bool:
        """True if parked pulls are answered at this moment, before their time is up."""
        ...

    def may_wait(self, header: PullMessage, missed: Found) -> bool:
        """True if a pull may wait for a message after this miss."""
        ...

    def wait_ms(self, asked_ms: int) -> int:
        """The time for which a pull waits that asks for `asked_ms`."""
        ...

    def code(self, header: PullMessage, missed: Found) -> int:
        """The code of the response to a miss."""
        ...

    def next_offset(self, header: PullMessage, missed: Found) -> int:
        """The offset to go on from after a miss."""
        ...

    def suggested_broker(
        self, group: SubscriptionGroupConfig, found: Found, *, is_slow: bool
    ) -> int:
        """The id of the broker to pull from next. `is_slow`: the messages are no longer in the
        memory here."""
        ...


class MasterPullRole:
    """A master serves every pull, and knows which offsets are valid."""

    refusal = None
    ends_long_polls = False

    def may_wait(self, header: PullMessage, missed: Found) -> bool:
        return self.code(header, missed) == codes.PULL_NOT_FOUND

    def wait_ms(self, asked_ms: int) -> int:
        return asked_ms

    def code(self, header: PullMessage, missed: Found) -> int:
        known = _CODES.get(missed.status)
        if known is not None:
            return known
        # No such queue yet, or an empty one: there only offset 0 is valid.
        return codes.PULL_NOT_FOUND if header.offset == 0 else codes.PULL_OFFSET_MOVED

    def next_offset(self, header: PullMessage, missed: Found) -> int:
        return missed.next_offset

    def suggested_broker(
        self, group: SubscriptionGroupConfig, found: Found, *, is_slow: bool
    ) -> int:
        return group.which_broker_when_consume_slowly if is_slow else group.broker_id


# How long a pull waits before it is sent to the master. RocketMQ's slave redirects at once, also
# without a master, and until the client's route has the master again the client asks in a loop.
MASTER_MS = 1_000
# The results for an offset within the queue; all others mean that it is outside.
SCANNED = frozenset({status.FOUND, status.NO_MATCHED_MESSAGE, status.MESSAGE_WAS_REMOVING})


@dataclass(slots=True, eq=False)
class SlavePullRole:
    """A slave delivers the messages that are here already, with slaveReadEnable.

    `is_master_there()` tells whether the master can be asked.
    """

    _config: BrokerConfig
    _is_master_there: Callable[[], bool]

    @property
    def refusal(self) -> str | None:
        if self._config.slave_read_enable:
            return None
        return (
            "[REJECTREQUEST]this broker is a slave and its slaveReadEnable is false; pull from "
            "its master, or set slaveReadEnable=true on both"
        )

    @property
    def ends_long_polls(self) -> bool:
        # A pull that was parked without a master ends as soon as there is one.
        return self._is_master_there()

    def may_wait(self, header: PullMessage, missed: Found) -> bool:
        return missed.status not in SCANNED

    def wait_ms(self, asked_ms: int) -> int:
        return min(asked_ms, MASTER_MS) if self._is_master_there() else asked_ms

    def code(self, header: PullMessage, missed: Found) -> int:
        if missed.status in SCANNED or self._is_master_there():
            return codes.PULL_RETRY_IMMEDIATELY
        return codes.PULL_NOT_FOUND

    def next_offset(self, header: PullMessage, missed: Found) -> int:
        return missed.next_offset if missed.status in SCANNED else header.offset

    def suggested_broker(
        self, group: SubscriptionGroupConfig, found: Found, *, is_slow: bool
    ) -> int:
        slave = group.which_broker_when_consume_slowly
        is_suggested = is_slow or group.broker_id == slave
        return slave if is_suggested and found.status == status.FOUND else MASTER_ID
