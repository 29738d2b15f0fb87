"""First, last and by-time offsets of a queue, requested from its broker.

An unknown broker is looked up once, in the route of the queue's topic.
"""

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID
from ...protocol.headers.offsets import OffsetResponse, QueueAddress, SearchOffset
from ...protocol.wire import Header
from ..base.responses import header_of
from ..errors import NoRouteError
from .cluster import Cluster


async def min_offset(cluster: Cluster, queue: MessageQueue) -> int:
    """The offset of the oldest message that is still there."""
    header = QueueAddress(queue.topic, queue.queue_id)
    # A broker may say -1 for a queue that was never written.
    return max(0, await _offset(cluster, queue, codes.GET_MIN_OFFSET, header))


async def max_offset(cluster: Cluster, queue: MessageQueue) -> int:
    """The offset that the next message will get."""
    header = QueueAddress(queue.topic, queue.queue_id)
    return await _offset(cluster, queue, codes.GET_MAX_OFFSET, header)


async def offset_at(cluster: Cluster, queue: MessageQueue, ms: int) -> int:
    """The offset of the first message stored at `ms` (since the epoch) or later."""
    header = SearchOffset(queue.topic, queue.queue_id, ms)
    return await _offset(cluster, queue, codes.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def broker_of(cluster: Cluster, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
    """The address of a queue's broker: of the wanted one, else of another of that name."""
    try:
        return cluster.address_for(queue, broker_id, only=False)
    except NoRouteError:
        await cluster.route(queue.topic, fresh=True)
        return cluster.address_for(queue, broker_id, only=False)


async def _offset(cluster: Cluster, queue: MessageQueue, code: int, header: Header) -> int:
    address = await broker_of(cluster, queue)
    answer = await cluster.ask(address, code, header)
    return header_of(answer, OffsetResponse, code).offset
