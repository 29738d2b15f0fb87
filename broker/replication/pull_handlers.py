"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) on a slave.

A slave knows only a part of what its master does: it may be behind, and its log may begin later.
So it never corrects a reader's offset. While the master can be asked, whoever finds nothing here is
sent there, after a moment in which something may come; else he waits here, as he would there.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
# How long somebody waits who is then sent to the master. RocketMQ's slave sends him at once, also
# without a master, and until the client's route has the master again it asks here in circles.
MASTER_MS = 1_000
# What came of an offset that is in the queue; the others say that it is not.
LOOKED_AT = frozenset({status.FOUND, status.NO_MATCHED_MESSAGE, status.MESSAGE_WAS_REMOVING})


@dataclass(eq=False)
class SlavePullHandlers(PullHandlers):
    """Hands out what is here already, with slaveReadEnable. `is_master_there()` tells whether the
    master can be asked."""

    is_master_there: Callable[[], bool]

    def on_pull(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> Response | bytes | None:
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
        # Somebody who waited without a master waits no longer once there is one.
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
