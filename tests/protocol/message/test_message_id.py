"""Message ids, compared with the ids of RocketMQ's own classes."""

import ipaddress
import json
import time
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.message.message_id import (
    UniqueIds,
    offset_message_id,
    parse_offset_message_id,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "ids.json").read_text())
OFFSET_IDS = [vector for vector in GOLDEN if vector["name"].startswith("offset message id")]
(UNIQUE,) = [vector for vector in GOLDEN if vector["name"].startswith("uniq key")]
HOST = bytes([10, 1, 2, 3, 0, 0, 0x2A, 0x9F])


def packed(vector: dict[str, Any]) -> bytes:
    port: int = vector["port"]
    return ipaddress.ip_address(vector["host"]).packed + port.to_bytes(4, "big")


@pytest.mark.parametrize("vector", OFFSET_IDS, ids=lambda v: v["name"])
def test_an_offset_message_id_is_encoded_and_decoded_as_in_java(vector: dict[str, Any]) -> None:
    assert offset_message_id(packed(vector), vector["offset"]) == vector["id"]
    assert parse_offset_message_id(vector["id"]) == (packed(vector), vector["offset"])
    assert parse_offset_message_id(vector["id"].lower()) == (packed(vector), vector["offset"])


@pytest.mark.parametrize("text", ["", "C0A8", "Z" * 32, "C0 " * 10 + "AA", "0" * 55, "é" * 32])
def test_a_text_that_is_not_an_offset_message_id_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        parse_offset_message_id(text)


def test_a_unique_id_has_the_parts_of_the_java_sample() -> None:
    sample = bytes.fromhex(UNIQUE["id"])
    ip = ipaddress.ip_address(UNIQUE["ip"]).packed
    assert sample.startswith(ip + (UNIQUE["pid"] & 0xFFFF).to_bytes(2, "big"))
    instance = int.from_bytes(sample[18:22], "big")
    since_month_ms = int.from_bytes(sample[22:26], "big")
    now = time.mktime((2026, 11, 1, 0, 0, 0, 0, 0, -1)) * 1000 + since_month_ms
    ids = UniqueIds(ip + bytes(4), lambda: int(now), UNIQUE["pid"], instance)
    assert ids.next() == UNIQUE["id"]
    assert ids.next() == UNIQUE["next_id"]


def test_the_time_in_a_unique_id_restarts_each_month() -> None:
    december = int(time.mktime((2026, 12, 1, 0, 0, 0, 0, 0, -1))) * 1000
    moments = iter([december - 1, december, december + 5, december - 1])
    ids = UniqueIds(HOST, lambda: next(moments), 1, 2)
    last, first, fifth, again = (int(ids.next()[20:28], 16) for _ in range(4))
    assert last == again
    assert 27 * 86_400_000 < last < 31 * 86_400_000
    assert (first, fifth) == (0, 5)


def test_the_counter_wraps_at_two_bytes() -> None:
    ids = UniqueIds(HOST, lambda: 1_700_000_000_000, 0x12345, -1)
    made = [ids.next() for _ in range(65_537)]
    assert made[0] == made[65_536]
    assert len(set(made)) == 65_536
    assert made[0].startswith("0A0102032345FFFFFFFF")
    assert made[65_535].endswith("FFFF")


def test_two_makers_of_one_process_differ() -> None:
    one, two = (UniqueIds(HOST, lambda: 1_700_000_000_000) for _ in range(2))
    assert one.next() != two.next()
