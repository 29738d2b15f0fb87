"""One pull of a push consumer: the request, and what each answer means for the queue.

The answer waits at the broker for up to 15 s when there is nothing (long polling), so a queue costs
one request that is always under way and no polling.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ..protocol import codes
from ..protocol import properties as props
from ..protocol.batch import unwrap
from ..protocol.bodies.route import MASTER_ID
from ..protocol.bodies.subscription import SubscriptionData
from ..protocol.command import Command
from ..protocol.errors import Malformed
from ..protocol.headers.pull import COMMIT_OFFSET, SUSPEND, PullMessage, PullMessageAnswer
from ..protocol.record import Record, decode_all
from .answers import header_of
from .cluster import Cluster
from .errors import BrokerError, ClientError
from .offsets import GroupOffsets
from .process_queue import ProcessQueue

log = logging.getLogger(__name__)

SUSPEND_MS = 15_000  # brokerSuspendMaxTimeMillis
PULL_SECONDS = 30.0  # consumerTimeoutMillisWhenSuspend
BATCH = 32  # pullBatchSize, messages
BATCH_BYTES_MAX = 256 << 10  # pullBatchSizeInBytes

TAGS = props.TAGS.encode()
NOTHING = (codes.PULL_NOT_FOUND, codes.PULL_RETRY_IMMEDIATELY)
LOST_US = (
    codes.SUBSCRIPTION_NOT_EXIST,
    codes.SUBSCRIPTION_NOT_LATEST,
    codes.SUBSCRIPTION_GROUP_NOT_EXIST,
)

Deliver = Callable[[ProcessQueue, list[Record]], None]


@dataclass(frozen=True, slots=True)
class PullSettings:
    """How a consumer pulls: at most `batch` messages at a time, waiting `suspend_ms` for some."""

    batch: int = BATCH
    suspend_ms: int = SUSPEND_MS
    timeout_s: float = PULL_SECONDS


class OffsetMoved(Exception):
    """The offset is not in the queue; go on at `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"go on at offset {offset}")
        self.offset = offset


class Puller:
    """Pulls for one group; `deliver` takes what a queue got, in order."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        offsets: GroupOffsets,
        settings: PullSettings,
        deliver: Deliver,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._offsets = offsets
        self._settings = settings
        self._deliver = deliver

    async def pull(self, held: ProcessQueue, subscription: SubscriptionData) -> None:
        """Pull once and deliver what came.

        OffsetMoved when the queue's messages are elsewhere; BrokerError or ClientError when the
        pull failed and should be made again after a while.
        """
        queue = held.queue
        address = self._cluster.address_of(queue.broker_name, held.suggested_broker_id, only=False)
        answer = await self._cluster.request(
            address,
            codes.PULL_MESSAGE,
            self._header(held, subscription),
            timeout_s=self._settings.timeout_s,
        )
        if held.dropped:
            return
        code = answer.code
        if code == codes.SUCCESS:
            self._found(held, subscription, answer)
        elif code in NOTHING:
            self._move_on(held, header_of(answer, PullMessageAnswer, codes.PULL_MESSAGE))
        elif code == codes.PULL_OFFSET_MOVED:
            header = header_of(answer, PullMessageAnswer, codes.PULL_MESSAGE)
            raise OffsetMoved(header.next_offset)
        else:
            if code in LOST_US:
                await self._cluster.beat_to(address)
            raise BrokerError(
                code, answer.remark, address, f"pull queue {queue.queue_id} of {queue.topic}"
            )

    def _header(self, held: ProcessQueue, subscription: SubscriptionData) -> PullMessage:
        flags, commit = SUSPEND, self._offsets.read(held.queue)
        if commit > 0 and held.suggested_broker_id == MASTER_ID:
            flags |= COMMIT_OFFSET
        return PullMessage(
            self._group,
            held.queue.topic,
            held.queue.queue_id,
            held.next_offset,
            self._settings.batch,
            flags,
            max(commit, 0),
            self._settings.suspend_ms,
            subscription.sub_version,
            expression_type=subscription.expression_type,
            max_bytes=BATCH_BYTES_MAX,
        )

    def _found(self, held: ProcessQueue, subscription: SubscriptionData, answer: Command) -> None:
        header = header_of(answer, PullMessageAnswer, codes.PULL_MESSAGE)
        try:
            records = [inner for each in decode_all(answer.body or b"") for inner in unwrap(each)]
        except Malformed as wrong:
            raise ClientError(f"the messages from offset {held.next_offset} on: {wrong}") from wrong
        # Brokers compare hashes of tags, and two tags may have the same.
        wanted = {tag.encode() for tag in subscription.tags_set}
        fresh = [
            record
            for record in records
            if (not wanted or props.find(record.raw_properties, TAGS) in wanted)
            and held.hold(record.queue_offset, len(record.body))
        ]
        self._move_on(held, header)
        if fresh:
            self._deliver(held, fresh)

    def _move_on(self, held: ProcessQueue, header: PullMessageAnswer) -> None:
        held.suggested_broker_id = header.suggested_broker_id
        held.next_offset = header.next_offset
        if held.is_empty:  # nothing below is open, so what the broker skipped is done as well
            self._offsets.update(held.queue, header.next_offset)
