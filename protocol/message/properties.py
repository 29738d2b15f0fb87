"""The properties of a message: `name \\x01 value \\x02 …`, and the names that RocketMQ reserves.

Writing skips None and keeps empty values. Reading drops pairs without a name, a separator or a
value, splits at the first \\x01, and the last of equal names wins: exactly as the Java classes do.
A value may hold \\x01 but never \\x02, so `\\x02NAME\\x01` can only be the start of a pair.
"""

from collections.abc import Mapping
from typing import AnyStr

NAME_VALUE_SEPARATOR = "\x01"
PAIR_SEPARATOR = "\x02"
PROPERTIES_BYTES_MAX = 32_767  # their length is a signed 16-bit number in the record
KEY_SEPARATOR = " "  # between the keys in KEYS
NEEDLES_MAX = 1_000  # names that `find` remembers

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MSG_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT = "TRACE_CONTEXT"
TRACE_PARENT = "traceparent"  # the context of a trace, by W3C
START_DELIVER_TIME = "__STARTDELIVERTIME"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
CRC32 = "__CRC32#"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."  # never stored

# Names that an application may not set (MessageConst.STRING_HASH_SET).
RESERVED = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QID,
        TRAN_MSG,
        PGROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        BUYER_ID,
        ORIGIN_MESSAGE_ID,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        RECONSUME_TIME,
        MSG_REGION,
        TRACE_ON,
        UNIQ_KEY,
        EXTEND_UNIQ_INFO,
        MAX_RECONSUME_TIMES,
        CONSUME_START_TIME,
        DUP_INFO,
        TRAN_PREPARED_QUEUE_OFFSET,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        CLUSTER,
        MSG_TYPE,
        POP_CK,
        POP_CK_OFFSET,
        FIRST_POP_TIME,
        INNER_MULTI_QUEUE_OFFSET,
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS,
        TIMER_ROLL_TIMES,
        TIMER_OUT_MS,
        TIMER_DEL_UNIQKEY,
        TIMER_DELAY_LEVEL,
        CRC32,
        BORN_HOST,
        BORN_TIMESTAMP,
        DLQ_ORIGIN_TOPIC,
        DLQ_ORIGIN_MESSAGE_ID,
    }
)

# Names that RocketMQ's clients and brokers write into messages: the reserved ones, and some that a
# sender may set, too.
SYSTEM = RESERVED | {
    SHARDING_KEY,
    TRANSACTION_ID,
    TRANSACTION_CHECK_TIMES,
    INNER_NUM,
    INNER_BASE,
    FORWARD_QUEUE_ID,
    REDIRECT,
    TRACE_CONTEXT,
}


def encode(pairs: Mapping[str, str | None]) -> bytes:
    """The stored form of these properties, in their order; None values are left out."""
    return join(pairs).encode(errors="replace")


def join(pairs: Mapping[str, str | None]) -> str:
    """The same as a text, as in the header of a send."""
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs.items() if value is not None])


def decode(raw: bytes | bytearray | memoryview | str) -> dict[str, str]:
    """The properties in a stored form or text; incomplete pairs are dropped."""
    text = raw if isinstance(raw, str) else bytes(raw).decode(errors="replace")
    pairs = {}
    for pair in text.split(PAIR_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            pairs[name] = value
    return pairs


def own(pairs: Mapping[str, str]) -> dict[str, str]:
    """The properties without the names in `SYSTEM`: the ones that the application set."""
    return {name: text for name, text in pairs.items() if name not in SYSTEM}


def keys_of(pairs: Mapping[str, str]) -> list[str]:
    """The keys of a message with these properties: only blanks separate them, no other space."""
    return [key for key in pairs.get(KEYS, "").split(KEY_SEPARATOR) if key]


def find(raw: bytes, name: bytes) -> bytes | None:
    """The value of one property in a stored form, without reading the others; None if absent."""
    needle = _NEEDLES[name]
    at = raw.rfind(needle)
    if at >= 0:
        start = at + len(needle)
        end = raw.find(b"\x02", start)
        if end > start:
            return raw[start:end]
    return _find_unusual(raw, needle, at)


def _find_unusual(raw: bytes, needle: bytes, at: int) -> bytes | None:
    """`find` for a pair at the very start or end of `raw`, and beside pairs with empty values."""
    while at >= 0:
        start = at + len(needle)
        end = raw.find(b"\x02", start)
        if end != start and start != len(raw):
            return raw[start:] if end < 0 else raw[start:end]
        at = raw.rfind(needle, 0, start - 1)
    if not raw.startswith(needle[1:]):
        return None
    start = len(needle) - 1
    end = raw.find(b"\x02", start)
    return (raw[start:] if end < 0 else raw[start:end]) or None


class _Needles(dict[bytes, bytes]):
    """The bytes that `find` searches for, by the name of a property."""

    def __missing__(self, name: bytes) -> bytes:
        needle = b"\x02%b\x01" % name
        if len(self) < NEEDLES_MAX:
            self[name] = needle
        return needle


_NEEDLES = _Needles()


def scan(raw: bytes) -> dict[bytes, tuple[int, int]] | None:
    """Start and end of each value in a stored form, by name; None if a pair has no name or no
    value, or if two have one name."""
    found: dict[bytes, tuple[int, int]] = {}
    at = 0
    for pair in raw.removesuffix(b"\x02").split(b"\x02") if raw else ():
        name, _, value = pair.partition(b"\x01")
        if not name or not value or name in found:
            return None
        found[name] = at + len(name) + 1, at + len(pair)
        at += len(pair) + 1
    return found


def ended(text: AnyStr) -> AnyStr:
    """A stored form or text to which pairs can be added: it ends in \\x02, or is empty."""
    end: AnyStr = b"\x02" if isinstance(text, bytes) else "\x02"
    return text if not text or text.endswith(end) else text + end


def without(raw: bytes, *names: str) -> bytes:
    """A stored form without the properties of these names."""
    starts = tuple(f"{name}\x01".encode() for name in names)
    return b"\x02".join(pair for pair in raw.split(b"\x02") if not pair.startswith(starts))
