"""One pull: the request, and the answer as messages and offsets.

The answer of a pull with SUSPEND waits at the broker while there is nothing (long polling), so a
queue costs one request that is always under way and no polling.
"""

import asyncio
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
NOT_HERE_SECONDS = 1.0  # when a slave sends us to a master that is not there
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
    """How a consumer pulls.

    One pull brings at most `batch` messages, 1 to 1,024. The broker holds a pull that finds nothing
    for `suspend_ms` milliseconds. The client waits `timeout_s` seconds for the answer, which must
    be longer. `interval_s` is a pause in seconds between two pulls of a queue (pullInterval).
    ClientError for values out of range.
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
    """The offset is not in the queue; go on at `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"go on at offset {offset}")
        self.offset = offset


@dataclass(slots=True)
class PullResult:
    """What a pull brought: `records` that the subscription wants, and where to go on.

    `code` is SUCCESS (0), PULL_NOT_FOUND (19), PULL_RETRY_IMMEDIATELY (20) or PULL_OFFSET_MOVED
    (21, the offset asked for is not in the queue).
    """

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = MASTER_ID
    records: list[Record] = field(default_factory=list)

    def says_elsewhere(self, offset: int) -> bool:
        """Whether a slave answered that it has nothing at this offset, and its master may have."""
        return self.code == codes.PULL_RETRY_IMMEDIATELY and self.next_offset == offset


def read_response(
    answer: Command, subscription: SubscriptionData, queue: MessageQueue, offset: int
) -> PullResult:
    """What a pull at `offset` brought; ClientError when its messages can't be read."""
    header = header_of(answer, PullMessageResponse, codes.PULL_MESSAGE)
    result = PullResult(
        answer.code,
        header.next_offset,
        header.min_offset,
        header.max_offset,
        header.suggested_broker_id,
    )
    if answer.code == codes.SUCCESS:
        try:
            body = answer.body or b""
            if header.offset_delta is not None:
                body = moved(body, queue.queue_id, header.offset_delta)
            records = unwrap_all(decode_all(body))
        except Malformed as wrong:
            raise ClientError(f"the messages from offset {offset} on: {wrong}") from wrong
        if subscription.tags_set:
            # Brokers compare hashes of tags, and two tags may have the same.
            wanted = {tag.encode() for tag in subscription.tags_set}
            records = [each for each in records if props.find(each.raw_properties, TAGS) in wanted]
        result.records = records
    return result


class Puller:
    """Pulls the held queues of a push consumer. A broadcasting group commits nothing by it."""

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

    async def pull(self, held: ProcessQueue, subscription: SubscriptionData) -> list[Record]:
        """Pull once; the messages, which the queue holds from now on.

        OffsetMoved when the queue's messages are elsewhere; BrokerError or ClientError when the
        pull failed and should be made again after a while.
        """
        queue = held.queue
        loop = self._cluster.loop
        address = self._cluster.address_for(queue, held.suggested_broker_id, only=False)
        began = loop.time()
        answer = await self._cluster.request(
            address,
            codes.PULL_MESSAGE,
            self._fields(held, subscription),
            timeout_s=self._settings.timeout_s,
        )
        if held.dropped:
            return []
        if answer.code not in ANSWERS:
            if answer.code in LOST_US:
                await self._cluster.beat_to(address)
            elif answer.code == codes.NOT_LEADER_FOR_QUEUE:
                await self._cluster.route(queue.topic, fresh=True)
                if self._cluster.address_for(queue, only=False) != address:
                    return []  # it has moved, the next pull goes there
            what = f"pull queue {queue.queue_id} of {queue.topic}"
            raise BrokerError(answer.code, answer.remark, address, what)
        result = read_response(answer, subscription, queue, held.next_offset)
        if result.code == codes.PULL_OFFSET_MOVED:
            raise OffsetMoved(result.next_offset)
        fresh = held.hold_all(result.records)
        held.suggested_broker_id = result.suggested_broker_id
        if result.says_elsewhere(held.next_offset):
            suggested = held.suggested_broker_id
            if self._cluster.address_for(queue, suggested, only=False) == address:
                await asyncio.sleep(NOT_HERE_SECONDS)  # RocketMQ asks again at once, and so on
                with suppress(AerobeeError):  # its next pull may make the same of it
                    await self._cluster.route(queue.topic, fresh=True)
        held.next_offset = result.next_offset
        if fresh:
            stats = held.stats
            stats.pulls += 1
            stats.pulled += len(fresh)
            stats.pull_seconds += loop.time() - began
        elif held.is_empty:  # nothing below is open, so what the broker skipped is done as well
            self._store.update(queue, result.next_offset)
        return fresh

    def _fields(self, held: ProcessQueue, subscription: SubscriptionData) -> dict[str, str]:
        """The header; what it has in common with the one before is not written anew."""
        flags, commit = SUSPEND, 0
        if self._clustering:
            commit = max(self._store.in_memory(held.queue), 0)
            if commit > 0 and held.suggested_broker_id == MASTER_ID:
                flags |= COMMIT_OFFSET
        if held.pull_fields is None or held.pull_fields[0] is not subscription:
            header = PullMessage(
                self._group,
                held.queue.topic,
                held.queue.queue_id,
                held.next_offset,
                self._settings.batch,
                flags,
                commit,
                self._settings.suspend_ms,
                subscription.sub_version,
                expression_type=subscription.expression_type,
                max_bytes=BATCH_BYTES_MAX,
            )
            held.pull_fields = (subscription, header.to_fields())
        fields = held.pull_fields[1].copy()
        fields[OFFSET] = str(held.next_offset)
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

    `lite` is the request of lite pull consumers (361). A broker that isn't known is looked for
    once. BrokerError for any other answer than those of `PullResult`.
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
    return read_response(answer, subscription, queue, offset)
