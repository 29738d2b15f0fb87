"""What the store takes: messages and batches; and the places it returns for them."""

from collections.abc import Sequence
from typing import NamedTuple

# The fields of a `Message` as a bare tuple, which the hot path builds several times faster.
MessageFields = tuple[
    tuple[str, int], int, int, int, bytes, bytes, bytes, int | None, int, int, bytes | None
]


class Message(NamedTuple):
    """One message to be stored."""

    key: tuple[str, int]  # topic and queue id
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes  # ip and port, 8 or 20 bytes
    body: bytes
    properties: bytes  # in stored form, ending with \x02
    # None in SCHEDULE_TOPIC_XXXX: the delivery time then follows from the level of the queue, and
    # otherwise from the property DELAY.
    tags_code: int | None
    reconsume_times: int = 0
    prepared_offset: int = 0  # of a transaction
    only_key: bytes | None = None  # the unique key, where it is known to be the only key


class Batch(NamedTuple):
    """The messages of one SEND_BATCH request; `body` has the layout of `protocol.message.batch`."""

    key: tuple[str, int]  # topic and queue id
    sys_flag: int
    born_ms: int
    born_host: bytes
    body: bytes
    reconsume_times: int = 0


Placed = tuple[int, int, int]  # log offset, queue offset, end in the log
PlacedBatch = tuple[int, Sequence[int], int]  # first queue offset, log offsets, end in the log
