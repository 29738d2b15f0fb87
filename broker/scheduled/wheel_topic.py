"""The messages of the wheel's topic, which wait there for their time."""

import logging

from ...protocol.message import properties
from ...protocol.message.record import Record, decode_record
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import WHEEL_TOPIC
from .real_destination import number_of

log = logging.getLogger(__name__)

BYTES_PER_STEP = 256 << 10  # of large messages that are read in one step


def waiting_message(store: MessageStore, place: int, length: int) -> Record | None:
    """The message of the wheel's topic at this place; None, logged, when there is none."""
    data = store.message_at(place)
    if data is not None and len(data) == length:
        record = decode_record(data)
        if record.topic == WHEEL_TOPIC:
            return record
    log.error("the timer message at %d is not in the log any more", place)
    return None


def timer_ms(record: Record) -> int | None:
    """TIMER_OUT_MS, the slot that a message of the wheel's topic is for; None without one."""
    text = properties.find(record.raw_properties, properties.TIMER_OUT_MS.encode())
    found = number_of(text, -1)
    return None if found < 0 else found
