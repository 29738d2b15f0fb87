"""Light queues (LMQ): queues that a message names, which get an entry for it besides its own queue.

The property INNER_MULTI_DISPATCH names them, `%LMQ%a,%LMQ%b`. The store adds the property
INNER_MULTI_QUEUE_OFFSET, the offset that the message has in each, so that the queues can be made
again from the log. A light queue has the id 0, one record serves all of them, and that record has
topic and offset of its own queue.
"""

from collections.abc import Sequence

from ...protocol.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    PROPERTIES_BYTES_MAX,
    find,
    without,
)
from ...protocol.names import LMQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX
from ..base.errors import IllegalMessage, StoreError
from ..base.settings import StoreSettings
from ..queues.consume_queue import SCHEDULE_TOPIC, ConsumeQueue
from ..queues.queues import Queues, is_legal
from .batch_writing import too_large

DISPATCH = INNER_MULTI_DISPATCH.encode()
OFFSETS = INNER_MULTI_QUEUE_OFFSET.encode()


def has_light(topic: str) -> bool:
    """True if messages of this topic may be in light queues."""
    return topic != SCHEDULE_TOPIC and not topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX))


def light_queues(
    queues: Queues, settings: StoreSettings, topic: str, properties: bytes
) -> list[ConsumeQueue]:
    """The light queues that a message names, in their order and each with room for one entry.

    Queues that are new are made. IllegalMessage for a name that is not of a light queue, StoreError
    when there are too many queues or no room for an entry.
    """
    text = find(properties, DISPATCH) if has_light(topic) else None
    if text is None or not text.strip():
        return []
    names = text.decode(errors="replace").rstrip(",").split(",")
    for name in names:
        # RocketMQ takes other names, too, and its dispatcher fails on such a message.
        if not name.startswith(LMQ_PREFIX) or not is_legal(name, 0):
            raise IllegalMessage(
                f"{INNER_MULTI_DISPATCH} names {name[:255]!r}, which is no light queue: a name is "
                f"{LMQ_PREFIX} and up to {255 - len(LMQ_PREFIX)} of the characters a-z A-Z 0-9 _ - "
                "% | +; correct the property"
            )
    news = len({name for name in names if (name, 0) not in queues.simple})
    if news and queues.light + news > settings.light_queues_max:
        raise StoreError(
            f"the message needs {news} new light queues, the store has {queues.light} and the "
            f"limit is {settings.light_queues_max} (maxLmqConsumeQueueNum); use fewer names, or "
            "raise the limit"
        )
    found = [queues.make(name, 0) for name in names]
    for queue in found:
        if queue.at >= queue.limit:
            queue.make_room()
    return found


def with_offsets(properties: bytes, light: Sequence[ConsumeQueue]) -> bytes:
    """The properties of a message with the offsets that it gets in these light queues."""
    if OFFSETS in properties:
        properties = without(properties, INNER_MULTI_QUEUE_OFFSET)
    if properties and properties[-1] != 2:
        properties += b"\x02"
    numbers = ",".join(str(queue.next) for queue in light)
    properties += OFFSETS + b"\x01" + numbers.encode() + b"\x02"
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise too_large(0, len(properties), 0)
    return properties
