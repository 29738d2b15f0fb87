"""What an acting master sends: messages as their producers sent them, without the waiting."""

from ...protocol.message import properties
from ...protocol.message.record import TRANSACTION_MASK, TRANSACTION_PREPARED, Record
from ...store.engine.messages import Message
from ...store.timer.timer_log import WHEEL_TOPIC
from ..scheduled.real_destination import number_of
from .escape import Letter

# They would have the other broker delay the message once more, or name a place on this broker.
WAITING = (
    properties.REAL_TOPIC,
    properties.REAL_QID,
    properties.DELAY,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_ENQUEUE_MS,
    properties.TIMER_DEQUEUE_MS,
    properties.TIMER_ROLL_TIMES,
    properties.TIMER_OUT_MS,
)
HALF = (
    properties.REAL_TOPIC,
    properties.REAL_QID,
    properties.TRAN_PREPARED_QUEUE_OFFSET,
)


def due_letter(message: Message, group: str, precision_ms: int) -> Letter:
    """A message that is due. One for the wheel's topic is not, it only goes around once more: it
    goes to the other broker as a timer message for its time. `group` is for one without a producer
    group."""
    pairs = properties.decode(message.properties)
    topic = message.key[0]
    out_ms = number_of(pairs.get(properties.TIMER_OUT_MS), -1)
    real_topic = pairs.get(properties.REAL_TOPIC, "")
    for name in WAITING:
        pairs.pop(name, None)
    if topic == WHEEL_TOPIC:
        topic = real_topic
        # A slot has the messages that are due by the end of its tick.
        pairs[properties.TIMER_DELIVER_MS] = str(out_ms + precision_ms)
    return Letter(
        topic,
        pairs.get(properties.PGROUP) or group,
        message.flag,
        message.sys_flag & ~TRANSACTION_MASK,
        message.born_ms,
        bytes(message.body),
        properties.encode(pairs).decode(errors="replace"),
        message.reconsume_times,
    )


def half_letter(half: Record, group: str) -> Letter:
    """A half message: the other broker asks the producer how its transaction ended."""
    pairs = half.properties
    topic = pairs.get(properties.REAL_TOPIC, "")
    for name in HALF:
        pairs.pop(name, None)
    pairs[properties.TRAN_MSG] = "true"
    return Letter(
        topic,
        pairs.get(properties.PGROUP) or group,
        half.flag,
        half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_PREPARED,
        half.born_ms,
        bytes(half.body),
        properties.encode(pairs).decode(errors="replace"),
        half.reconsume_times,
    )
