"""Which properties of a sent message a broker acts on: one table for everything that reads sends.

The compiled reader (`protocol/kernels/parse_sends.py`) looks each name up here, the handler of
single sends (`broker/send/handlers.py`) takes its sets of names from here. A property that is not
in the table is stored as it came.
"""

from enum import IntEnum

from . import properties as props


class Effect(IntEnum):
    """The effect of a property on the broker."""

    NONE = 0
    UNIQUE_KEY = 1  # identifies the message in the response and in the index
    KEYS = 2  # indexes the message under each word
    TAGS = 3  # decides which consumers get it: the hash goes into the queue
    ORDER = 4  # counts the message as one of a FIFO topic
    WAIT = 5  # "false": the response waits neither for the disk nor for slaves
    DELAY = 6  # delays the delivery
    SINGLE = 7  # has another effect, so the message is handled singly


EFFECTS = {
    props.UNIQ_KEY: Effect.UNIQUE_KEY,
    props.KEYS: Effect.KEYS,
    props.TAGS: Effect.TAGS,
    props.SHARDING_KEY: Effect.ORDER,
    props.WAIT: Effect.WAIT,
    props.DELAY: Effect.DELAY,
    props.TIMER_DELAY_SEC: Effect.DELAY,
    props.TIMER_DELAY_MS: Effect.DELAY,
    props.TIMER_DELIVER_MS: Effect.DELAY,
    props.START_DELIVER_TIME: Effect.SINGLE,  # counts as delayed, and is not
    props.TIMER_OUT_MS: Effect.SINGLE,  # a timer has delivered the message: it waits no more
    props.TIMER_DEL_UNIQKEY: Effect.SINGLE,  # recalls another message
    props.TRAN_MSG: Effect.SINGLE,  # a half message
    props.POP_CK: Effect.SINGLE,  # a receipt handle, which a sender can't have
    props.INNER_NUM: Effect.SINGLE,  # a batch in one record, which only batch queues have
    props.INNER_MULTI_DISPATCH: Effect.SINGLE,  # goes into light queues, too
}


def names_with(*effects: Effect) -> frozenset[str]:
    """The names of the properties with one of these effects."""
    return frozenset(name for name, effect in EFFECTS.items() if effect in effects)


DELAYS = names_with(Effect.DELAY)
