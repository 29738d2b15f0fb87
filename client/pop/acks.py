"""Acknowledging a popped message, or changing how long it stays invisible.

Both name the message by its handle. A message popped from a retry topic is acknowledged in that
topic.
"""

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.pop import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeResponse
from ...protocol.message import pop_handles
from ..base.responses import header_of
from ..cluster.cluster import Cluster
from ..cluster.queue_bounds import broker_of

ACK_SECONDS = 3.0  # ASYNC_TIMEOUT


async def ack(cluster: Cluster, group: str, queue: MessageQueue, handle: str, offset: int) -> None:
    """Acknowledge a message of `queue`. BrokerError or ClientError if that fails."""
    known = pop_handles.parse_handle(handle)
    topic = pop_handles.real_topic(queue.topic, group, known.retry)
    header = AckMessage(group, topic, known.queue_id, handle, offset_of(handle, offset))
    address = await broker_of(cluster, queue)
    await cluster.ask(address, codes.ACK_MESSAGE, header, timeout_s=ACK_SECONDS)


async def change_invisible_time(
    cluster: Cluster, group: str, queue: MessageQueue, handle: str, offset: int, ms: int
) -> str:
    """The message comes again `ms` from now unless it is done before; its new handle."""
    known = pop_handles.parse_handle(handle)
    offset = offset_of(handle, offset)
    topic = pop_handles.real_topic(queue.topic, group, known.retry)
    header = ChangeInvisibleTime(group, topic, known.queue_id, handle, offset, ms)
    address, code = await broker_of(cluster, queue), codes.CHANGE_MESSAGE_INVISIBLETIME
    answer = await cluster.ask(address, code, header, timeout_s=ACK_SECONDS)
    changed = header_of(answer, ChangeInvisibleTimeResponse, code)
    # The message has a check point of its own now, which begins at its own offset.
    return pop_handles.handle(
        offset,
        changed.pop_ms,
        changed.invisible_ms,
        changed.revive_queue_id,
        known.retry,
        known.broker_name,
        known.queue_id,
        offset,
    )


def offset_of(handle: str, offset: int) -> int:
    """The offset that a handle speaks of: its own, or without one that of its message."""
    own = pop_handles.parse_handle(handle).offset
    return offset if own < 0 else own
