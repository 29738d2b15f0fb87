"""consumerOrderInfo.json: what each group has popped in order and not acknowledged all of."""

from msgspec import field

from ..wire import Int32, Int64
from .body import Body


class OrderInfo(Body):
    """The batch of one queue that was popped last. Times in ms.

    `offsets` has the first queue offset, then distances from it; `acked` has a bit for each. The
    maps by queue offset say when a message is visible again (if not with the batch), and how often
    it was popped before.
    """

    pop_time: Int64 = 0
    invisible_time: Int64 | None = field(name="i", default=None)
    offsets: list[Int64] | None = field(name="o", default=None)
    next_visible_times: dict[Int64, Int64] | None = field(name="ot", default=None)
    consumed_counts: dict[Int64, Int32] | None = field(name="oc", default=None)
    last_consume_time: Int64 = field(name="l", default=0)
    acked: Int64 = field(name="cm", default=0)
    attempt_id: str | None = field(name="a", default=None)


class ConsumerOrderInfoWrapper(Body):
    """The file: `topic@group` to queue id to batch."""

    table: dict[str, dict[Int32, OrderInfo]] = {}
