"""A record as a message of RocketMQ 5."""

import hashlib
import socket
import zlib
from typing import Any

import pytest
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.compression import KINDS, compress
from aerobee.protocol.message.record import COMPRESSED, Record
from aerobee.proxy.messages.receiving import message_of

from ..support import TYPES

NOW = 1_700_000_000_000
HOST = socket.inet_aton("192.0.2.1") + (10_911).to_bytes(4, "big")


def record(body: bytes = b"hello", sys_flag: int = 0, /, **pairs: str) -> Record:
    raw = props.encode(pairs)
    return Record(
        0, 0, 0, 3, 0, 77, 1_000, sys_flag, 5_007, HOST, 6_008, HOST, 2, 0, body, "T", raw
    )


def read(found: Record, topic: str = "T", **fields: Any) -> Any:
    return message_of(found, topic, now_ms=NOW, **fields)


def test_every_property_has_its_field() -> None:
    pairs = {"UNIQ_KEY": "ID", "TAGS": "t", "KEYS": "a b", "TRACE_CONTEXT": "ctx", "color": "red"}
    found = read(record(**pairs, __SHARDINGKEY="g"), handle="handle")
    system = found.system_properties
    assert dict(found.user_properties) == {"color": "red"}
    assert (found.body, system.body_encoding) == (b"hello", 1)
    digest = hashlib.md5(b"hello", usedforsecurity=False).hexdigest().upper()
    assert (system.body_digest.type, system.body_digest.checksum) == (2, digest)
    assert (system.message_id, system.tag, list(system.keys)) == ("ID", "t", ["a", "b"])
    assert (system.message_group, system.trace_context) == ("g", "ctx")
    assert (system.born_timestamp.seconds, system.born_timestamp.nanos) == (5, 7_000_000)
    assert (system.store_timestamp.seconds, system.store_timestamp.nanos) == (6, 8_000_000)
    assert (system.born_host, system.store_host) == ("192.0.2.1:10911", "192.0.2.1:10911")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 77, 3)
    assert system.receipt_handle == "handle"
    assert system.message_type == TYPES["FIFO"]


@pytest.mark.parametrize(
    ("pairs", "kind"),
    [
        ({}, "NORMAL"),
        ({"DELAY": "3"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "5"}, "DELAY"),
        ({"TRAN_MSG": "true", "__SHARDINGKEY": "g"}, "TRANSACTION"),
    ],
)
def test_the_type_follows_from_the_properties(pairs: dict[str, str], kind: str) -> None:
    assert read(record(**pairs)).system_properties.message_type == TYPES[kind]


def test_a_namespace_is_told_apart_from_the_name() -> None:
    topic = read(record(), "ns%orders").topic
    assert (topic.resource_namespace, topic.name) == ("ns", "orders")
    assert read(record(), "%DLQ%group").topic.name == "%DLQ%group"


def test_the_time_of_a_delivery_is_told() -> None:
    times = [
        read(record(**pairs)).system_properties.delivery_timestamp.seconds
        for pairs in ({"TIMER_DELIVER_MS": "9000"}, {"TIMER_DELAY_SEC": "7"}, {})
    ]
    assert times == [9, NOW // 1_000 + 7, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_of_remoting_producers_are_unpacked(kind: str) -> None:
    body = compress(b"hello" * 100, kind=KINDS[kind])
    found = read(record(body, COMPRESSED | KINDS[kind]))
    assert (found.body, found.system_properties.body_encoding) == (b"hello" * 100, 1)


@pytest.mark.parametrize("body", [b"\x1f\x8b no gzip", b"something else"])
def test_what_was_labelled_gzip_stays_as_it_is(body: bytes) -> None:
    found = read(record(body, COMPRESSED))
    assert (found.body, found.system_properties.body_encoding) == (body, 2)


def test_the_zlib_of_old_clients_is_unpacked() -> None:
    assert read(record(zlib.compress(b"hello"), COMPRESSED)).body == b"hello"


def test_a_dead_letter_says_where_it_comes_from() -> None:
    pairs = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "M"}
    letter = read(record(**pairs), "%DLQ%group").system_properties.dead_letter_queue
    assert (letter.topic, letter.message_id) == ("T", "M")
    assert not read(record(**pairs)).system_properties.HasField("dead_letter_queue")
