"""A message of a gRPC producer as a send request of remoting: its checks, properties and flags."""

from dataclasses import dataclass
from typing import Any

from ...protocol.message import properties as props
from ...protocol.message.record import COMPRESSED, TRANSACTION_PREPARED
from ..settings.config import ProxyConfig
from . import definitions, times
from .names import check_text, has_control, topic_of
from .status import Code, StatusError

KINDS = definitions.enum("MessageType")
NORMAL, FIFO, DELAY, TRANSACTION, MIXED = "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"
GZIP = definitions.enum("Encoding")["GZIP"]
PROPERTIES_BYTES_MAX = 32_767  # of the stored form, a signed 16-bit number

# Names that brokers and clients act on, beside the reserved ones: no user may set them.
FORBIDDEN = props.SYSTEM | {
    props.CHECK_IMMUNITY_TIME_IN_SECONDS,
    props.INNER_MULTI_DISPATCH,
    props.INNER_MULTI_QUEUE_OFFSET,
}


@dataclass(slots=True)
class Outgoing:
    """A checked message: what its send request says. `kind` is derived from its properties."""

    topic: str
    message_id: str
    body: bytes
    properties: str
    sys_flag: int
    born_ms: int
    kind: str
    group: str


def outgoing(message: Any, config: ProxyConfig, peer: str, now_ms: int) -> Outgoing:
    """The send request of a message; StatusError for the first of its faults."""
    system = message.system_properties
    body: bytes = message.body
    _check_body(body, config)
    pairs = _user_properties(message, config)
    message_id: str = system.message_id
    if not message_id.strip():
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if has_control(message_id):
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
    pairs[props.UNIQ_KEY] = message_id
    sys_flag = COMPRESSED if system.body_encoding == GZIP else 0
    is_transaction = system.message_type == KINDS[TRANSACTION]
    if is_transaction:
        sys_flag |= TRANSACTION_PREPARED
        pairs[props.TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            pairs[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = _recovery_seconds(system, config)
    has_time = system.HasField("delivery_timestamp")
    if has_time:
        ms = times.to_ms(
            system.delivery_timestamp, "delivery_timestamp", Code.ILLEGAL_DELIVERY_TIME
        )
        pairs[props.TIMER_DELIVER_MS] = str(ms)
    topic = topic_of(message.topic)
    pairs[props.RECONSUME_TIME] = str(system.delivery_attempt)
    pairs[props.PGROUP] = topic
    group: str = system.message_group
    if group:
        _check_group(group, config)
        pairs[props.SHARDING_KEY] = group
    if system.trace_context:
        check_text("trace context", system.trace_context, Code.BAD_REQUEST)
        pairs[props.TRACE_CONTEXT] = system.trace_context
    born_host: str = system.born_host.strip() or peer
    if born_host:
        check_text("born host", born_host, Code.BAD_REQUEST)
        pairs[props.BORN_HOST] = born_host
    born_ms = times.to_ms(system.born_timestamp, "born_timestamp")
    pairs[props.BORN_TIMESTAMP] = str(born_ms)
    text = props.join(pairs)
    size = len(text.encode())
    if size > PROPERTIES_BYTES_MAX:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"all properties take {size} bytes, the limit is {PROPERTIES_BYTES_MAX}; send fewer",
        )
    kind = TRANSACTION if is_transaction else DELAY if has_time else FIFO if group else NORMAL
    born_ms = born_ms or now_ms
    return Outgoing(topic, message_id, body, text, sys_flag, born_ms, kind, group)


def _check_body(body: bytes, config: ProxyConfig) -> None:
    if not body and config.enable_message_body_empty_check:
        raise StatusError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    most = config.max_message_size
    if most and len(body) > most:
        raise StatusError(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"message body cannot exceed the max {most}, it has {len(body)} bytes",
        )


def _user_properties(message: Any, config: ProxyConfig) -> dict[str, str]:
    """User properties, tag and keys."""
    pairs: dict[str, str] = dict(message.user_properties)
    if len(pairs) > config.user_property_max_num:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {config.user_property_max_num}, there are "
            f"{len(pairs)}",
        )
    size = 0
    illegal = Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    for name, value in pairs.items():
        if name in FORBIDDEN:
            raise StatusError(illegal, f"property is used by system: {name}")
        if has_control(name):
            raise StatusError(illegal, "the key of property cannot contain control character")
        if has_control(value):
            raise StatusError(illegal, "the value of property cannot contain control character")
        size += len(name.encode()) + len(value.encode())
    system = message.system_properties
    tag: str = system.tag
    if tag:
        check_text("tag", tag, Code.ILLEGAL_MESSAGE_TAG, "|")
        pairs[props.TAGS] = tag
        size += len(tag.encode())
    if system.keys:
        for key in system.keys:
            check_text("key", key, Code.ILLEGAL_MESSAGE_KEY)
            size += len(key.encode())
        pairs[props.KEYS] = props.KEY_SEPARATOR.join(system.keys)
    if size > config.max_user_property_size:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {config.max_user_property_size}"
            f", it is {size}",
        )
    return pairs


def _recovery_seconds(system: Any, config: ProxyConfig) -> str:
    what = "orphaned_transaction_recovery_duration"
    seconds = times.to_ms(system.orphaned_transaction_recovery_duration, what) // 1_000
    most = config.max_transaction_recovery_second
    if most and seconds > most:
        raise StatusError(
            Code.BAD_REQUEST,
            "the max transaction recovery time of message is too large, max is "
            f"{most}, it is {seconds}",
        )
    return str(seconds)


def _check_group(group: str, config: ProxyConfig) -> None:
    check_text("message group", group, Code.ILLEGAL_MESSAGE_GROUP)
    most = config.max_message_group_size
    if most and len(group.encode()) >= most:
        raise StatusError(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"message group exceed the max size {most}, it has {len(group.encode())} bytes",
        )
