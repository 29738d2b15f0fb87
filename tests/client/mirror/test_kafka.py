"""Records of Kafka as messages; tests/interop/test_mirror_kafka.py copies from a real broker."""

from types import SimpleNamespace
from typing import Any

import pytest
from aerobee.client.mirror.kafka import copyable
from aerobee.protocol.message import properties as props


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Any:
    return SimpleNamespace(offset=7, timestamp=5, key=key, value=value, headers=headers)


def test_key_and_headers_become_properties() -> None:
    found = copyable(record(b"k", b"v", ("shop", b"berlin"), ("KEYS", b"x"), ("empty", None)))
    assert (found.offset, found.born_ms, found.body) == (7, 5, b"v")
    assert props.decode(found.raw_properties) == {
        "shop": "berlin",
        "kafka.KEYS": "x",
        "kafka.key": "k",
        props.SHARDING_KEY: "k",
        props.KEYS: "k",
    }


def test_no_header_takes_the_place_of_another_or_of_the_key() -> None:
    headers = ("h", b"1"), ("h", b"2"), ("h.2", b"3"), ("kafka.key", b"4"), ("kafka.value", b"5")
    pairs = props.decode(copyable(record(b"k", None, *headers)).raw_properties)
    assert pairs == {
        "h": "1",
        "h.2": "2",
        "h.2.2": "3",
        "kafka.kafka.key": "4",
        "kafka.kafka.value": "5",
        "kafka.key": "k",
        "kafka.value": "null",
        props.SHARDING_KEY: "k",
        props.KEYS: "k",
    }


@pytest.mark.parametrize("value", [b"\xff", b"a\x01b", b"a\x02b", b"\x00"])
def test_what_is_no_text_is_written_in_base64(value: bytes) -> None:
    pairs = props.decode(copyable(record(value, b"v", ("h", value))).raw_properties)
    assert pairs["kafka.key.base64"] == pairs["h.base64"]
    assert not {"kafka.key", "h"} & pairs.keys()


def test_a_key_with_a_blank_is_no_key_of_the_message() -> None:
    pairs = props.decode(copyable(record(b"a b", b"v")).raw_properties)
    assert (pairs["kafka.key"], pairs[props.SHARDING_KEY]) == ("a b", "a b")
    assert props.KEYS not in pairs


@pytest.mark.parametrize(("value", "said"), [(None, "null"), (b"", "empty")])
def test_a_record_without_a_value_has_a_body_and_says_so(value: bytes | None, said: str) -> None:
    found = copyable(record(None, value))
    assert found.body == b"\0"
    assert props.decode(found.raw_properties) == {"kafka.value": said}
