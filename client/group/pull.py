"""A pull: the request, and the response decoded into messages and offsets.

With SUSPEND the broker parks a pull that finds nothing (long polling), so each queue has one
pending request and no polling.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID
from ...protocol.bodies.subscription import TAG, SubscriptionData
from ...protocol.command import Command
from ...protocol.errors import Malformed
from ...protocol.headers.pull import (
    COMMIT,
    COMMIT_OFFSET,
    FLAGS,
    LITE_PULL,
    OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullMessage,
    PullMessageResponse,
)
from ...protocol.message import properties as props
from ...protocol.message.batch import unwrap_all
from ...protocol.message.record import Record, decode_all, moved
from ..base.arguments import check_count, check_type
from ..base.responses import header_of
from ..cluster.cluster import Cluster
from ..cluster.queue_bounds import broker_of
from ..errors import AerobeeError, BrokerError, ClientError
from .offsets import OffsetStore
from .process_queue import ProcessQueue

SUSPEND_MS = 15_000  # brokerSuspendMaxTimeMillis
SUSPEND_MS_MAX = 100_000
PULL_SECONDS = 30.0  # consumerTimeoutMillisWhenSuspend
BATCH = 32  # pullBatchSize, messages
NOT_HERE_SECONDS = 1.0  # the pause if a slave redirects to a master that is down
BATCH_BYTES_MAX = 256 << 10  # pullBatchSizeInBytes

TAGS = props.TAGS.encode()
ANSWERS = frozenset(
    (
        codes.SUCCESS,
        codes.PULL_NOT_FOUND,
        codes.PULL_RETRY_IMMEDIATELY,
        codes.PULL_OFFSET_MOVED,
    )
)
LOST_US = (
    codes.SUBSCRIPTION_NOT_EXIST,
    codes.SUBSCRIPTION_NOT_LATEST,
    codes.SUBSCRIPTION_GROUP_NOT_EXIST,
)


@dataclass(frozen=True, slots=True)
class PullSettings:
    """Settings of pulls.

    One pull returns at most `batch` messages, 1 to 1,024. The broker parks a pull that finds
    nothing for `suspend_ms` milliseconds. The client waits `timeout_s` seconds for the response,
    which must be longer. `interval_s` is a pause in seconds between two pulls of a queue
    (pullInterval). ClientError for values out of range.
    """

    batch: int = BATCH
    suspend_ms: int = SUSPEND_MS
    timeout_s: float = PULL_SECONDS
    interval_s: float = 0.0

    def __post_init__(self) -> None:
        check_count("batch", self.batch, 1, 1024, "messages")
        check_type("suspend_ms", self.suspend_ms, int, "give whole ms")
        check_type("timeout_s", self.timeout_s, (int, float), "give seconds")
        if not 0 <= self.suspend_ms <= SUSPEND_MS_MAX:
            raise ClientError(
                f"suspend_ms is {self.suspend_ms}; give 0 to {SUSPEND_MS_MAX}, because a queue "
                "that is not pulled for longer counts as stuck"
            )
        if self.timeout_s * 1000 < self.suspend_ms:
            raise ClientError(
                f"timeout_s is {self.timeout_s:g} and suspend_ms {self.suspend_ms}: the answer may "
                "come later than it is waited for; give a longer timeout_s"
            )


class OffsetMoved(Exception):
    """The requested offset is not in the queue, which ends at `end`; the broker says `offset`."""

    def __init__(self, offset: int, end: int) -> None:
        super().__init__(f"go on at offset {offset}")
        self.offset = offset
        self.end = end


@dataclass(slots=True)
class PullResult:
    """The result of a pull: `records` that match the subscription, and the next offset.

    `code` is SUCCESS (0), PULL_NOT_FOUND (19), PULL_RETRY_IMMEDIATELY (20) or PULL_OFFSET_MOVED
    (21: the requested offset is not in the queue).
    """

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = MASTER_ID
    records: list[Record] = field(default_factory=list)

    def says_elsewhere(self, offset: int) -> bool:
        """True if a slave has no message at this offset, and its master may have one."""
        return self.code == codes.PULL_RETRY_IMMEDIATELY and self.next_offset == offset


def read_records(
    answer: Command,
    offset_delta: int | None,
    subscription: SubscriptionData,
    queue: MessageQueue,
    offset: int,
) -> list[Record]:
    """The records of a successful pull at `offset`; ClientError when they can't be read."""
    try:
        body = answer.body or b""
        if offset_delta is not None:
            body = moved(body, queue.queue_id, offset_delta)
        records = unwrap_all(decode_all(body))
    except Malformed as wrong:
        raise ClientError(f"the messages from offset {offset} on: {wrong}") from wrong
    if subscription.tags_set:
        # Brokers compare hashes of tags; two tags may have the same hash.
        wanted = {tag.encode() for tag in subscription.tags_set}
        records = [each for each in records if props.find(each.raw_properties, TAGS) in wanted]
    return records


@dataclass(slots=True)
class PullRequest:
    """A pull request. `begun` is its pending response, None if nothing was sent yet.

    `began` is the loop's clock in seconds.
    """

    address: str
    fields: dict[str, str]
    began: float
    begun: asyncio.Future[Command] | None = None


class Puller:
    """Pulls the assigned queues of a push consumer. Without `clustering`, pulls commit nothing.

    The next request of a queue is written before the messages of the last response are decoded
    and handed out, so that broker and client work at the same time.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        store: OffsetStore,
        settings: PullSettings,
        *,
        clustering: bool = True,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._store = store
        self._settings = settings
        self._clustering = clustering
        self._ahead: dict[ProcessQueue, PullRequest] = {}  # sent before the last one was handled

    async def pull(
        self,
        process_queue: ProcessQueue,
        subscription: SubscriptionData,
        may_pull_ahead: Callable[[], bool] = lambda: False,
    ) -> list[Record]:
        """Pull once; returns the new messages, which the queue counts as open from now on.

        If `may_pull_ahead()` is true when the response arrives and the queue has room, the next
        request is sent at once; the next call waits for its response. Call `abandon` after the
        last one. OffsetMoved when the queue's messages are elsewhere; BrokerError or ClientError
        when the pull failed and should be tried again after a pause.
        """
        queue, cluster = process_queue.queue, self._cluster
        request = self._ahead.pop(process_queue, None) or self._request(process_queue, subscription)
        answer = await cluster.request(
            request.address,
            codes.PULL_MESSAGE,
            request.fields,
            timeout_s=self._settings.timeout_s,
            begun=request.begun,
        )
        if process_queue.dropped:
            return []
        if answer.code not in ANSWERS:
            return await self._refused(process_queue, answer, request.address)
        seconds = cluster.loop.time() - request.began
        header = header_of(answer, PullMessageResponse, codes.PULL_MESSAGE)
        if answer.code == codes.PULL_OFFSET_MOVED:
            raise OffsetMoved(header.next_offset, header.max_offset)
        offset, process_queue.next_offset = process_queue.next_offset, header.next_offset
        process_queue.suggested_broker_id = header.suggested_broker_id
        if answer.code != codes.SUCCESS:
            if answer.code == codes.PULL_RETRY_IMMEDIATELY and header.next_offset == offset:
                await self._rest(process_queue, request.address)
            records = []
        else:
            size = len(answer.body or b"")
            if process_queue.has_room_for(self._settings.batch, size) and may_pull_ahead():
                await self._pull_ahead(process_queue, subscription)
            if process_queue.dropped:
                return []
            try:
                records = read_records(answer, header.offset_delta, subscription, queue, offset)
            except ClientError:
                process_queue.next_offset = offset
                self.abandon(process_queue)
                raise
        fresh = process_queue.hold_all(records)
        if fresh:
            stats = process_queue.stats
            stats.pulls += 1
            stats.pulled += len(fresh)
            stats.pull_seconds += seconds
        elif (
            process_queue.is_empty
        ):  # no message is open, so offsets that the broker skipped are done too
            self._store.update(queue, header.next_offset)
        return fresh

    def is_ahead(self, process_queue: ProcessQueue) -> bool:
        """True if the next pull of this queue was sent ahead."""
        return process_queue in self._ahead

    def abandon(self, process_queue: ProcessQueue) -> None:
        """Drop the response of a request that was sent ahead."""
        request = self._ahead.pop(process_queue, None)
        if request is not None and request.begun is not None:
            request.begun.cancel()  # this also consumes the error of a failed request

    def _request(self, process_queue: ProcessQueue, subscription: SubscriptionData) -> PullRequest:
        cluster = self._cluster
        address = cluster.address_for(
            process_queue.queue, process_queue.suggested_broker_id, only=False
        )
        return PullRequest(address, self._fields(process_queue, subscription), cluster.loop.time())

    async def _pull_ahead(
        self, process_queue: ProcessQueue, subscription: SubscriptionData
    ) -> None:
        """Send the next request, if a connection is ready, and return when it is written.

        Without a route nothing is sent: an error here would lose the messages that have come.
        """
        try:
            request = self._request(process_queue, subscription)
        except AerobeeError:
            return  # the next pull says why
        connection = self._cluster.connected(request.address)
        if connection is None or connection.is_lost or connection.is_full:
            return
        timeout_s = self._settings.timeout_s
        request.begun = connection.request(codes.PULL_MESSAGE, request.fields, b"", timeout_s)
        self._ahead[process_queue] = request
        await asyncio.sleep(0)  # connections write at the end of the loop iteration

    async def _refused(
        self, process_queue: ProcessQueue, answer: Command, address: str
    ) -> list[Record]:
        """Raise BrokerError, unless the queue has moved: then the next pull goes there."""
        queue = process_queue.queue
        if answer.code in LOST_US:
            await self._cluster.beat_to(address)
        elif answer.code == codes.NOT_LEADER_FOR_QUEUE:
            await self._cluster.route(queue.topic, fresh=True)
            if self._cluster.address_for(queue, only=False) != address:
                return []
        what = f"pull queue {queue.queue_id} of {queue.topic}"
        raise BrokerError(answer.code, answer.remark, address, what)

    async def _rest(self, process_queue: ProcessQueue, address: str) -> None:
        """Pause and fetch the route, unless the next pull goes to another broker of the queue."""
        queue, suggested = process_queue.queue, process_queue.suggested_broker_id
        if self._cluster.address_for(queue, suggested, only=False) == address:
            await asyncio.sleep(NOT_HERE_SECONDS)  # RocketMQ's client retries at once, repeatedly
            with suppress(AerobeeError):  # the next pull may fail for the same reason
                await self._cluster.route(queue.topic, fresh=True)

    def _fields(
        self, process_queue: ProcessQueue, subscription: SubscriptionData
    ) -> dict[str, str]:
        """The header fields; only the fields that change are encoded again."""
        flags, commit = SUSPEND, 0
        if self._clustering:
            commit = max(self._store.in_memory(process_queue.queue), 0)
            if commit > 0 and process_queue.suggested_broker_id == MASTER_ID:
                flags |= COMMIT_OFFSET
        if process_queue.pull_fields is None or process_queue.pull_fields[0] is not subscription:
            header = PullMessage(
                self._group,
                process_queue.queue.topic,
                process_queue.queue.queue_id,
                process_queue.next_offset,
                self._settings.batch,
                flags,
                commit,
                self._settings.suspend_ms,
                subscription.sub_version,
                expression_type=subscription.expression_type,
                max_bytes=BATCH_BYTES_MAX,
            )
            process_queue.pull_fields = (subscription, header.to_fields())
        fields = process_queue.pull_fields[1].copy()
        fields[OFFSET] = str(process_queue.next_offset)
        fields[COMMIT] = str(commit)
        fields[FLAGS] = str(flags)
        return fields


async def pull_by_hand(
    cluster: Cluster,
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: SubscriptionData,
    settings: PullSettings,
    *,
    lite: bool = False,
) -> PullResult:
    """Pull at any offset, with the subscription in the request; commits nothing.

    `lite` selects the request of lite pull consumers (361). An unknown broker is looked up once.
    BrokerError for any code that `PullResult` does not list.
    """
    if offset < 0:
        raise ClientError(f"the offset to pull {queue} at is {offset}; give 0 or more")
    flags = SUBSCRIPTION | (LITE_PULL if lite else 0) | (SUSPEND if settings.suspend_ms else 0)
    header = PullMessage(
        group,
        queue.topic,
        queue.queue_id,
        offset,
        settings.batch,
        flags,
        commit_offset=0,
        suspend_ms=settings.suspend_ms,
        sub_version=0 if subscription.expression_type == TAG else subscription.sub_version,
        subscription=subscription.sub_string,
        expression_type=subscription.expression_type,
    )
    address = await broker_of(cluster, queue)
    is_lite = lite and address not in cluster.without_lite_pull
    code = codes.LITE_PULL_MESSAGE if is_lite else codes.PULL_MESSAGE
    answer = await cluster.request(address, code, header, timeout_s=settings.timeout_s)
    if is_lite and answer.code == codes.REQUEST_CODE_NOT_SUPPORTED:  # by brokers before 5.0
        cluster.without_lite_pull.add(address)
        code = codes.PULL_MESSAGE
        answer = await cluster.request(address, code, header, timeout_s=settings.timeout_s)
    if answer.code not in ANSWERS:
        if answer.code in LOST_US:
            await cluster.beat_to(address)
        elif answer.code == codes.NOT_LEADER_FOR_QUEUE:
            await cluster.route(queue.topic, fresh=True)
        what = f"pull queue {queue.queue_id} of {queue.topic}"
        raise BrokerError(answer.code, answer.remark, address, what)
    found = header_of(answer, PullMessageResponse, codes.PULL_MESSAGE)
    result = PullResult(
        answer.code,
        found.next_offset,
        found.min_offset,
        found.max_offset,
        found.suggested_broker_id,
    )
    if answer.code == codes.SUCCESS:
        result.records = read_records(answer, found.offset_delta, subscription, queue, offset)
    return result
