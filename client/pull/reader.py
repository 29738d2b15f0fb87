"""Reading of queues: bounds, offsets by time, pulls at an offset the caller chooses.

A reader joins no group: it sends its subscription with every pull, so it needs no heartbeat, and it
commits only on request. `expression` is tags ("a || b") or, with `is_sql`, a SQL92 condition;
brokers compare hashes of tags, so other messages may be returned as well. A queue is pulled from
the broker that the last response suggested: a slave if the master is busy. Messages that a slave
does not have yet are requested from the master.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID
from ...protocol.headers.offsets import UpdateConsumerOffset
from ...protocol.headers.pull import BULK, SUBSCRIPTION, PullMessage, PullMessageResponse
from ...protocol.message.record import moved
from ..base.responses import header_of
from ..base.security import OPEN, Security
from ..cluster import queue_bounds
from ..cluster.cluster import topic_names
from ..cluster.own_cluster import OwnCluster
from ..errors import AerobeeError, BrokerError, ClientError
from ..group.process_queue import name_of
from ..group.pull import ANSWERS, PULL_SECONDS

MESSAGES_MAX = 1024  # requested in one pull; brokers return 32 unless configured otherwise
BULK_MESSAGES_MAX = 8_192  # the same in bulk, which only aerobee's brokers support


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull.

    `code` is SUCCESS (0), PULL_NOT_FOUND (19, nothing there yet), PULL_RETRY_IMMEDIATELY (20,
    continue at `next_offset`) or PULL_OFFSET_MOVED (21, the offset is outside the queue). `body`
    holds consecutive message records, empty unless the code is 0.
    """

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes


class Reader(OwnCluster):
    """Reads queues of any topic on asyncio; `async with`, or `start` and `close`."""

    _keeps_routes = True

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str = "TOOLS_CONSUMER",
        expression: str = "*",
        is_sql: bool = False,
        security: Security = OPEN,
    ) -> None:
        super().__init__(name_server, security=security)
        self.group = group
        self._expression = expression
        self._expression_type = "SQL92" if is_sql else "TAG"
        self._suggested: dict[MessageQueue, int] = {}  # broker ids, of queues that slaves answer

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return await topic_names(self._open())

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset in a queue, for tools that show its lag."""
        header = UpdateConsumerOffset(self.group, queue.topic, queue.queue_id, offset)
        address = await queue_bounds.broker_of(self._open(), queue)
        await self._open().ask(address, codes.UPDATE_CONSUMER_OFFSET, header)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic` as they are now, sorted; NoRouteError when unknown."""
        route = await self._open().route(topic, fresh=True)
        return sorted(route.subscribe)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await queue_bounds.min_offset(self._open(), queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await queue_bounds.max_offset(self._open(), queue)

    async def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` or later."""
        return await queue_bounds.offset_at(self._open(), queue, ms)

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        """The messages from `offset` on; returns at once, also without messages.

        With `bulk` aerobee's brokers return as many as requested, up to a MiB; RocketMQ's brokers
        apply their own limits. BrokerError for any code that `Pulled` does not list.
        """
        most = BULK_MESSAGES_MAX if bulk else MESSAGES_MAX
        if not 0 < max_messages <= most:
            raise ClientError(f"max_messages is {max_messages}; give 1 to {most}")
        header = PullMessage(
            self.group,
            queue.topic,
            queue.queue_id,
            offset,
            max_messages,
            SUBSCRIPTION | BULK if bulk else SUBSCRIPTION,
            commit_offset=0,
            suspend_ms=0,
            sub_version=0,
            subscription=self._expression,
            expression_type=self._expression_type,
        )
        broker_id = self._suggested.pop(queue, MASTER_ID) if self._suggested else MASTER_ID
        if broker_id != MASTER_ID:
            with suppress(AerobeeError):  # it is down or failing: ask the master
                pulled = await self._pull(queue, header, broker_id)
                if pulled.code == codes.SUCCESS:
                    return pulled
        return await self._pull(queue, header, MASTER_ID)

    async def _pull(self, queue: MessageQueue, header: PullMessage, broker_id: int) -> Pulled:
        cluster = self._open()
        address = await queue_bounds.broker_of(cluster, queue, broker_id)
        answer = await cluster.request(address, codes.PULL_MESSAGE, header, timeout_s=PULL_SECONDS)
        if answer.code not in ANSWERS:
            if answer.code == codes.NOT_LEADER_FOR_QUEUE:
                await cluster.route(queue.topic, fresh=True)
            raise BrokerError(answer.code, answer.remark, address, f"pull {name_of(queue)}")
        found = header_of(answer, PullMessageResponse, codes.PULL_MESSAGE)
        if found.suggested_broker_id != MASTER_ID:
            self._suggested[queue] = found.suggested_broker_id
        body = (answer.body if answer.code == codes.SUCCESS else None) or b""
        if found.offset_delta is not None:
            body = moved(body, queue.queue_id, found.offset_delta)
        return Pulled(answer.code, found.next_offset, found.min_offset, found.max_offset, body)
