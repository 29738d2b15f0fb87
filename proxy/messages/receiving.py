"""A record of a broker as a message of RocketMQ 5."""

import hashlib
import logging
from functools import lru_cache
from typing import Any

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.message_id import host_text
from ...protocol.message.record import COMPRESSED, COMPRESSION_MASK, Record
from ...protocol.names import DLQ_PREFIX
from . import definitions, times
from .names import parted
from .sending import DELAY, FIFO, KINDS, NORMAL, TRANSACTION

log = logging.getLogger(__name__)

Message = definitions.message("Message")
_ENCODINGS = definitions.enum("Encoding")
_IDENTITY, _GZIP = _ENCODINGS["IDENTITY"], _ENCODINGS["GZIP"]
_host_text = lru_cache(4_096)(host_text)
_MD5 = definitions.enum("DigestType")["MD5"]
_NORMAL, _FIFO, _DELAY, _TRANSACTION = map(KINDS.__getitem__, (NORMAL, FIFO, DELAY, TRANSACTION))
_LEFT_OUT = props.RESERVED | {
    props.SHARDING_KEY,
    props.TRACE_CONTEXT,
    props.CHECK_IMMUNITY_TIME_IN_SECONDS,
    props.TRANSACTION_ID,
    props.TRANSACTION_CHECK_TIMES,
}


def message_of(
    record: Record,
    topic: str,
    *,
    now_ms: int,
    handle: str | None = None,
    attempt: int | None = None,
    pairs: dict[str, str] | None = None,
    asked: Any = None,
) -> Any:
    """The message in a record. `topic` is the topic that it was sent to, `attempt` the number of
    this delivery, from 1; None takes the record's. `pairs` are its properties, if they are known.

    The message's topic has the form of the Resource with which the client `asked` for it, or, if
    the client did not, namespace and name, as RocketMQ's proxy always gives it.
    """
    pairs = record.properties if pairs is None else pairs
    found = Message()
    if asked is None:
        found.topic.resource_namespace, found.topic.name = parted(topic)
    else:
        found.topic.CopyFrom(asked)
    for name, value in pairs.items():
        if name not in _LEFT_OUT:
            found.user_properties[name] = value
    system = found.system_properties
    body, encoding = _body(record)
    found.body = body
    system.body_encoding = encoding
    system.body_digest.type = _MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    if (tag := pairs.get(props.TAGS)) is not None:
        system.tag = tag
    if keys := pairs.get(props.KEYS):
        system.keys.extend(keys.split(props.KEY_SEPARATOR))
    system.message_id = pairs.get(props.UNIQ_KEY) or record.offset_id
    system.message_type = _kind(pairs)
    times.set_ms(system.born_timestamp, record.born_ms)
    system.born_host = pairs.get(props.BORN_HOST) or _host_text(record.born_host)
    times.set_ms(system.store_timestamp, record.store_ms)
    system.store_host = _host_text(record.store_host)
    _set_delivery(system, pairs, now_ms)
    if (group := pairs.get(props.SHARDING_KEY)) is not None:
        system.message_group = group
    if handle is not None:
        system.receipt_handle = handle
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = record.reconsume_times + 1 if attempt is None else attempt
    if (context := pairs.get(props.TRACE_CONTEXT)) is not None:
        system.trace_context = context
    _set_dead_letter(system, topic, pairs)
    return found


def _body(record: Record) -> tuple[bytes, int]:
    """The body and its encoding. What gRPC's producers labelled GZIP stays as it is."""
    flag = record.sys_flag
    if not flag & COMPRESSED:
        return record.body, _IDENTITY
    if not flag & COMPRESSION_MASK and record.body[:2] == b"\x1f\x8b":
        return record.body, _GZIP
    try:
        return decompress(record.body, flag), _IDENTITY
    except (Malformed, CompressionMissing) as wrong:
        if flag & COMPRESSION_MASK:
            log.warning("the body of message %s stays compressed: %s", record.offset_id, wrong)
        return record.body, _GZIP


def _kind(pairs: dict[str, str]) -> int:
    if pairs.get(props.TRAN_MSG) == "true":
        return _TRANSACTION
    if props.DELAY in pairs or props.TIMER_DELIVER_MS in pairs or props.TIMER_DELAY_SEC in pairs:
        return _DELAY
    return _FIFO if props.SHARDING_KEY in pairs else _NORMAL


def _set_delivery(system: Any, pairs: dict[str, str], now_ms: int) -> None:
    seconds, ms = pairs.get(props.TIMER_DELAY_SEC), pairs.get(props.TIMER_DELIVER_MS)
    if seconds is not None and seconds.isdecimal() and len(seconds) < 12:
        times.set_ms(system.delivery_timestamp, now_ms + int(seconds) * 1_000)
    elif ms is not None and ms.isdecimal() and len(ms) < 15:
        times.set_ms(system.delivery_timestamp, int(ms))


def _set_dead_letter(system: Any, topic: str, pairs: dict[str, str]) -> None:
    origin = pairs.get(props.DLQ_ORIGIN_TOPIC)
    message_id = pairs.get(props.DLQ_ORIGIN_MESSAGE_ID)
    if topic.startswith(DLQ_PREFIX):
        origin = origin or pairs.get(props.RETRY_TOPIC)
        message_id = message_id or pairs.get(props.ORIGIN_MESSAGE_ID)
    if origin and message_id:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = message_id
