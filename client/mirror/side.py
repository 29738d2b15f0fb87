"""One of the two clusters of a mirror, with one set of connections."""

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.send import SendMessage, SendMessageResponse
from ...protocol.message.batch import unwrap_all
from ...protocol.message.record import Record, decode_all
from ..admin.admin import Admin
from ..base.receipts import STATUS_OF_CODE
from ..base.responses import header_of
from ..cluster import queue_bounds
from ..cluster.cluster import Cluster
from ..errors import BrokerError
from ..group.offsets import ReadFrom, RemoteOffsetStore
from ..pull.reader import Reader

SEND_SECONDS = 10.0


class Side(Reader, Admin):
    """A client of one cluster that reads, changes and sends."""

    @property
    def cluster(self) -> Cluster:
        """The connections to the cluster; ClosedError before the start."""
        return self._open()

    async def addresses(self) -> set[str]:
        """The addresses of all brokers."""
        brokers = (await self.cluster_info()).broker_addr_table.values()
        return {address for broker in brokers for address in broker.broker_addrs.values()}

    async def records(self, queue: MessageQueue, offset: int, count: int) -> list[Record]:
        """Up to `count` messages from `offset` on, and none before it."""
        pulled = await self.pull(queue, offset, count)
        found = unwrap_all(decode_all(pulled.body))
        return [each for each in found if each.queue_offset >= offset][:count]

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has in a queue; None when it has none."""
        offset = await RemoteOffsetStore(self.cluster, group).read(queue, ReadFrom.STORE)
        return None if offset < 0 else offset

    async def commit_for(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a group in a queue."""
        store = RemoteOffsetStore(self.cluster, group)
        await store.update_to_broker(queue, offset, oneway=False)

    async def send(self, code: int, header: SendMessage, queue: MessageQueue, body: bytes) -> int:
        """Send to a queue; the offset that the (first) message got there.

        One try. BrokerError when the message is not stored; after UnreachableError with
        `is_unsent` false, and NoAnswerError, it may be.
        """
        address = await queue_bounds.broker_of(self.cluster, queue)
        answer = await self.cluster.request(address, code, header, body, SEND_SECONDS)
        if answer.code not in STATUS_OF_CODE:
            if answer.code in (codes.NOT_LEADER_FOR_QUEUE, codes.TOPIC_NOT_EXIST):
                await self.cluster.route(queue.topic, fresh=True)
            what = f"copy to queue {queue.queue_id} of {queue.topic}"
            raise BrokerError(answer.code, answer.remark, address, what)
        return header_of(answer, SendMessageResponse, code).queue_offset
