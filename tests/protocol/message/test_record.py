"""Records against the bytes that the real classes made, and against damaged ones."""

import ipaddress
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.message.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    RESERVED_CRC_BYTES,
    Record,
    body_crc,
    crc_property,
    decode_all,
    decode_record,
    encode_record,
    is_crc_property_right,
    properties_places,
    raw_properties_of,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "records.json").read_text())
HASHES = json.loads((Path(__file__).parents[2] / "golden" / "hashes.json").read_text())
WHOLE = [vector for vector in GOLDEN if "hex" in vector]
FIELDS = [vector for vector in WHOLE if "storeSize" in vector]
CRC_RECORD = bytes.fromhex(next(v["hex"] for v in FIELDS if "CRC32" in v["name"]))


def host(text: str) -> bytes:
    ip, _, port = text.lstrip("/").rpartition(":")
    return ipaddress.ip_address(ip.strip("[]")).packed + int(port).to_bytes(4, "big")


@pytest.mark.parametrize("vector", FIELDS, ids=lambda v: v["name"])
def test_a_record_of_java_is_read_field_by_field(vector: dict[str, Any]) -> None:
    record = decode_record(bytes.fromhex(vector["hex"]))
    assert record.size == vector["storeSize"]
    assert record.body_crc == vector["bodyCRC"]
    assert record.queue_id == vector["queueId"]
    assert record.flag == vector["flag"]
    assert record.queue_offset == vector["queueOffset"]
    assert record.log_offset == vector["physicalOffset"]
    assert record.sys_flag == vector["sysFlag"]
    assert record.born_ms == vector["bornTimestamp"]
    assert record.born_host == host(vector["bornHost"])
    assert record.store_ms == vector["storeTimestamp"]
    assert record.store_host == host(vector["storeHost"])
    assert record.reconsume_times == vector["reconsumeTimes"]
    assert record.prepared_offset == vector["preparedTransactionOffset"]
    assert record.body == bytes.fromhex(vector["body_hex"] or "")
    assert record.topic == vector["topic"]
    assert record.properties == (vector["properties"] or {})
    assert record.offset_id == vector["msgId"]
    assert record.is_body_intact


@pytest.mark.parametrize("vector", WHOLE, ids=lambda v: v["name"])
def test_a_record_of_java_is_written_again_byte_for_byte(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    assert encode_record(decode_record(data)) == data


@pytest.mark.parametrize("vector", WHOLE, ids=lambda v: v["name"])
def test_a_record_is_read_whole_cut_short_and_with_bytes_behind(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    whole = decode_record(data)
    for end in range(len(data)):
        with pytest.raises(Malformed):
            decode_record(data[:end])
    assert decode_record(b"abc" + data + b"more", 3) == whole
    assert decode_record(memoryview(bytearray(data))) == whole


@pytest.mark.parametrize("vector", WHOLE, ids=lambda v: v["name"])
def test_properties_are_found_without_reading_the_rest(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    assert raw_properties_of(memoryview(data)) == decode_record(data).raw_properties


def test_properties_of_records_side_by_side_are_found_or_left_to_who_looks_at_one() -> None:
    parts = [bytes.fromhex(vector["hex"]) for vector in WHOLE]
    data = b"".join(parts)
    places = properties_places(data)
    assert [data[start:end] for start, _, end in places] == parts
    told = {part: data[at:end] for part, (_, at, end) in zip(parts, places, strict=True) if at >= 0}
    assert told == {part: raw_properties_of(part) for part in told}
    common = {part for part in parts if decode_record(part).magic == MAGIC_V1 and not part[39] & 48}
    assert set(told) == common
    assert 0 < len(common) < len(parts)
    broken = bytearray(parts[0])
    broken[84:88] = (1 << 31).to_bytes(4, "big")
    cut = parts[1][:-1]
    ends = [len(broken), len(broken) + len(cut)]
    assert properties_places(bytes(broken) + cut)[0] == (0, -1, ends[0])
    assert [end for _, _, end in properties_places(bytes(broken) + cut)] == ends
    assert properties_places(b"abc") == [(0, -1, 3)]


def test_properties_beyond_the_end_are_malformed() -> None:
    data = bytes.fromhex(WHOLE[0]["hex"])
    broken = bytearray(data)
    broken[84:88] = (1 << 31).to_bytes(4, "big")
    for damaged in (data[: len(data) - len(raw_properties_of(data)) - 1], bytes(broken)):
        with pytest.raises(Malformed, match="properties begin at"):
            raw_properties_of(damaged)


def test_all_records_of_a_pull_are_read_in_order() -> None:
    parts = [bytes.fromhex(vector["hex"]) for vector in WHOLE]
    assert [encode_record(record) for record in decode_all(b"".join(parts))] == parts
    assert decode_all(b"") == []


@pytest.mark.parametrize("vector", WHOLE, ids=lambda v: v["name"])
def test_a_record_of_a_pull_is_the_same_as_a_record_alone(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    plain = encode_record(decode_record(CRC_RECORD))
    found = decode_all(memoryview(plain + data + plain))
    assert found == [decode_record(plain), decode_record(data), decode_record(plain)]


def test_every_damage_to_the_lengths_of_a_pulled_record_is_found_as_in_a_record_alone() -> None:
    for place in (0, 3, 4, 7, 39, 84, 87, 88, len(CRC_RECORD) - RESERVED_CRC_BYTES):
        for bit in range(8):
            damaged = bytearray(CRC_RECORD)
            damaged[place] ^= 1 << bit
            assert outcome(decode_all, damaged) == outcome(
                lambda data: [decode_record(data)], damaged
            )


def outcome(read: Callable[[bytes], list[Record]], data: bytearray) -> list[Record] | str:
    try:
        return read(bytes(data))
    except Malformed as wrong:
        return str(wrong)


def test_a_pull_with_a_broken_record_is_refused_whole() -> None:
    data = bytes.fromhex(WHOLE[0]["hex"])
    with pytest.raises(Malformed):
        decode_all(data + data[:-1])


def test_the_topic_decides_the_version_by_its_characters() -> None:
    record = decode_record(bytes.fromhex(WHOLE[0]["hex"]))
    for length, magic in ((127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)):
        record.topic = "t" * length
        again = decode_record(encode_record(record))
        assert (again.magic, again.topic) == (magic, record.topic)


def test_lengths_that_contradict_each_other_are_malformed() -> None:
    data = bytearray(bytes.fromhex(WHOLE[0]["hex"]))
    for at, value in ((84, -1), (84, 1 << 30), (84, 6), (0, 10), (0, len(data) - 1)):
        broken = bytearray(data)
        broken[at : at + 4] = value.to_bytes(4, "big", signed=True)
        with pytest.raises(Malformed):
            decode_record(broken)
    with pytest.raises(Malformed, match="magic"):
        decode_record(bytes(RECORD_BYTES_MIN))


def test_a_changed_body_is_not_intact() -> None:
    data = bytearray(bytes.fromhex(WHOLE[0]["hex"]))
    data[88] ^= 1
    assert not decode_record(data).is_body_intact


@pytest.mark.parametrize(
    "vector", [v for v in HASHES if v["kind"] == "body_crc"], ids=lambda v: v["text"]
)
def test_the_body_crc_is_that_of_java(vector: dict[str, Any]) -> None:
    assert body_crc(bytes.fromhex(vector["utf8_hex"])) == vector["bodyCRC"]


def test_the_crc_property_is_that_of_java() -> None:
    end = len(CRC_RECORD) - RESERVED_CRC_BYTES
    assert crc_property(CRC_RECORD[:end]) == CRC_RECORD[end:]
    assert is_crc_property_right(CRC_RECORD) is True
    assert is_crc_property_right(bytes.fromhex(WHOLE[0]["hex"])) is None


def test_one_changed_bit_anywhere_makes_the_crc_property_wrong() -> None:
    for at in range(len(CRC_RECORD) - RESERVED_CRC_BYTES):
        broken = bytearray(CRC_RECORD)
        broken[at] ^= 0x10
        assert is_crc_property_right(bytes(broken)) is False


def test_the_smallest_record_has_91_bytes() -> None:
    record = Record(0, 0, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"", "", b"")
    data = encode_record(record)
    assert len(data) == RECORD_BYTES_MIN == 91
    assert decode_record(data).topic == ""
