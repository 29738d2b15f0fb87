"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) on a slave.

A slave knows only a part of what its master knows: it may be behind, and its log may begin later.
So it never corrects a reader's offset. While the master is up, a pull that finds nothing is sent to
the master, after a moment in which a message may come. Without a master the pull waits here.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.pull import PullMessage
from ...store.base import status
from ...store.engine.reading import Found
from ..filters.matching import Wanted
from ..pull.handlers import PullHandlers

MASTER = 0  # the id of a master
# How long a pull waits before it is sent to the master. RocketMQ's slave redirects at once, also
# without a master, and until the client's route has the master again the client asks in a loop.
MASTER_MS = 1_000
# The results for an offset within the queue; all others mean that it is outside.
LOOKED_AT = frozenset({status.FOUND, status.NO_MATCHED_MESSAGE, status.MESSAGE_WAS_REMOVING})


@dataclass(eq=False)
class SlavePullHandlers(PullHandlers):
    """Delivers the messages that are here already, with slaveReadEnable. `is_master_there()` tells
    whether the master can be asked."""

    is_master_there: Callable[[], bool]

    def on_pull(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> Response | bytes | Coroutine[Any, Any, Response] | None:
        if not self.config.slave_read_enable:
            raise Refusal(
                codes.SYSTEM_BUSY,
                "[REJECTREQUEST]this broker is a slave and its slaveReadEnable is false; pull from "
                "its master, or set slaveReadEnable=true on both",
            )
        return super().on_pull(header, command, connection)

    def rerun(
        self, header: PullMessage, command: Command, connection: Connection, final: bool
    ) -> Response | bytes | None:
        # A pull that was parked without a master ends as soon as there is one.
        return super().rerun(header, command, connection, final or self.is_master_there())

    def _may_wait(self, header: PullMessage, found: Found) -> bool:
        return found.status not in LOOKED_AT

    def _suspend_ms(self, header: PullMessage) -> int:
        asked_ms = super()._suspend_ms(header)
        return min(asked_ms, MASTER_MS) if self.is_master_there() else asked_ms

    def _look(self, header: PullMessage, wanted: Wanted) -> Found:
        found = super()._look(header, wanted)
        if found.status not in LOOKED_AT:
            found.next_offset = header.offset
        return found

    def _code(self, header: PullMessage, found: Found) -> int:
        if found.status == status.FOUND:
            return codes.SUCCESS
        if found.status in LOOKED_AT or self.is_master_there():
            return codes.PULL_RETRY_IMMEDIATELY
        return codes.PULL_NOT_FOUND

    def _suggested_broker(
        self, header: PullMessage, found: Found, group: SubscriptionGroupConfig
    ) -> int:
        suggested = super()._suggested_broker(header, found, group)
        is_slow = suggested == group.which_broker_when_consume_slowly
        return suggested if is_slow and found.status == status.FOUND else MASTER
