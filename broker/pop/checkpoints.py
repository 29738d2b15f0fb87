"""Check points: which messages a group popped from a queue, until when, and which it acknowledged.

A check point comes into being with a pop. It is over once all its messages are acknowledged, or
when its time is up and the others have been put into the retry topic. In the revive topic it is
the body that Java writes (`PopCheckPoint`); its bit map has 32 bits, so it covers 32 messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...protocol.bodies.pop import PopCheckPoint
from ..scheduled.real_destination import number_of

MESSAGES_MAX = 32  # of one check point

# Identifies a check point: topic, group, queue id, start offset, pop time.
CheckPointKey = tuple[str, str, int, int, int]


@dataclass(slots=True, eq=False)
class CheckPoint:
    """A check point. Times in ms; `acked` has bit i for the message at `offsets[i]`.

    `next_offset` is where the next pop of the queue begins; -1 when the group's offset has nothing
    to do with it. `log_end` is how far the log must be on disk before the group's offset may
    pass it.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    offsets: Sequence[int]
    next_offset: int = -1
    acked: int = 0
    is_stored: bool = False
    put_back: int = 0  # how often it was put back, since a message could not come again
    log_end: int = 0
    whole: int = field(init=False)

    def __post_init__(self) -> None:
        self.whole = (1 << len(self.offsets)) - 1

    @property
    def key(self) -> CheckPointKey:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms

    @property
    def revive_ms(self) -> int:
        """The time at which its messages are visible again."""
        return self.pop_ms + self.invisible_ms

    @property
    def is_acked(self) -> bool:
        """True if all its messages are acknowledged."""
        return self.acked == self.whole

    def ack(self, offset: int) -> bool:
        """Note an acknowledgement; False when the message is not one of these."""
        try:
            self.acked |= 1 << self.offsets.index(offset)
        except ValueError:
            return False
        return True

    def left(self) -> list[int]:
        """The queue offsets of the messages that are not acknowledged."""
        return [offset for at, offset in enumerate(self.offsets) if not self.acked >> at & 1]

    def to_body(self, broker_name: str) -> PopCheckPoint:
        """The body of its message in the revive topic."""
        start = self.start_offset
        return PopCheckPoint(
            start,
            self.pop_ms,
            self.invisible_ms,
            # Java keeps the bits in an int, whose last bit is the sign.
            self.acked - (1 << 32) if self.acked >> 31 else self.acked,
            len(self.offsets),
            self.queue_id,
            self.topic,
            self.group,
            0,
            [offset - start for offset in self.offsets],
            broker_name,
            str(self.put_back) if self.put_back else None,
        )


def from_body(body: PopCheckPoint, revive_queue_id: int) -> CheckPoint | None:
    """The check point in a message of the revive topic; None when it names no messages."""
    if not body.topic or not body.consumer_group or body.num > MESSAGES_MAX:
        return None
    start = body.start_offset
    # Old brokers wrote no distances: the messages were neighbours.
    distances = body.queue_offset_diff or range(body.num)
    point = CheckPoint(
        body.topic,
        body.consumer_group,
        body.queue_id,
        start,
        body.pop_time,
        body.invisible_time,
        revive_queue_id,
        [start + distance for distance in distances][:MESSAGES_MAX],
    )
    point.acked = body.bit_map & point.whole
    point.put_back = number_of(body.re_put_times, 0)
    return point
