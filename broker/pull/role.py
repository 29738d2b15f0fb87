"""What the role of a broker (brokerRole) decides about its pulls."""

from typing import Protocol

from ...protocol import codes
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.headers.pull import PullMessage
from ...store.base import status
from ...store.engine.reading import Found

_CODES = {
    status.MESSAGE_WAS_REMOVING: codes.PULL_RETRY_IMMEDIATELY,
    status.NO_MATCHED_MESSAGE: codes.PULL_RETRY_IMMEDIATELY,
    status.OFFSET_FOUND_NULL: codes.PULL_NOT_FOUND,
    status.OFFSET_OVERFLOW_ONE: codes.PULL_NOT_FOUND,
    status.OFFSET_OVERFLOW_BADLY: codes.PULL_OFFSET_MOVED,
    status.OFFSET_TOO_SMALL: codes.PULL_OFFSET_MOVED,
}


class PullRole(Protocol):
    """The part of pulls that differs between a master and a slave. A miss is a look-up that found
    no message."""

    @property
    def refusal(self) -> str | None:
        """Why no pull is served at this moment; None while pulls are served."""
        ...

    @property
    def ends_long_polls(self) -> bool:
        """Whether parked pulls are answered at this moment, before their time is up."""
        ...

    def may_wait(self, header: PullMessage, missed: Found) -> bool:
        """Whether a pull may wait for a message after this miss."""
        ...

    def wait_ms(self, asked_ms: int) -> int:
        """How long a pull waits that asks for `asked_ms`."""
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
