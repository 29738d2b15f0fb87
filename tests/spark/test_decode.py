"""Rows made from stored records: against the real classes' bytes and a simple reader of them."""

import json
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from aerobee.lake.rows.columns import BY_NAME, row_columns
from aerobee.lake.rows.decode import decode
from aerobee.protocol.errors import Malformed
from aerobee.protocol.message.record import decode_all
from aerobee.store.columns import unwrap
from hypothesis import given, strategies

from .stored import HOST_V4, HOST_V6, inner_batch, lz4, stored, zstd

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "records.json").read_text())
WHOLE = [entry for entry in GOLDEN if "storeSize" in entry]
PACKED = [entry for entry in GOLDEN if "stored_body_hex" in entry]
ALL_COLUMNS = row_columns(headers=True, full=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of(data: bytes, *names: str, **limits: Any) -> list[dict[str, Any]]:
    columns = tuple(BY_NAME[name] for name in names) or ALL_COLUMNS
    batch = decode(data, columns, broker_name="broker-a", **limits)
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def time(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("entry", WHOLE, ids=lambda entry: entry["name"])
def test_a_record_of_the_real_broker_becomes_the_row_it_stands_for(entry: dict[str, Any]) -> None:
    (row,) = rows_of(bytes.fromhex(entry["hex"]))
    properties = entry["properties"] or {}
    assert row["value"] == bytes.fromhex(entry["body_hex"] or "")
    assert row["topic"] == entry["topic"]
    assert (row["partition"], row["queueId"]) == (entry["queueId"], entry["queueId"])
    assert row["offset"] == entry["queueOffset"]
    assert row["timestamp"] == time(entry["storeTimestamp"])
    assert row["timestampType"] == 1
    assert row["bornTimestamp"] == time(entry["bornTimestamp"])
    assert row["flag"] == entry["flag"]
    assert row["sysFlag"] == entry["sysFlag"]
    assert row["reconsumeTimes"] == entry["reconsumeTimes"]
    assert dict(row["properties"]) == properties
    assert row["key"] == properties.get("KEYS")
    assert row["tags"] == properties.get("TAGS")
    assert row["msgId"] == properties.get("UNIQ_KEY", entry["msgId"])
    host = "[2001:db8::1]" if ":db8:" in entry["bornHost"] else "10.1.2.3"
    assert row["bornHost"] == f"{host}:54321"
    assert row["brokerName"] == "broker-a"


@pytest.mark.parametrize("entry", PACKED, ids=lambda entry: entry["name"])
def test_a_body_that_a_java_client_compressed_comes_out_uncompressed(entry: dict[str, Any]) -> None:
    flag: int = entry["sysFlag_on_wire"] if "sysFlag_on_wire" in entry else entry["sysFlag"]
    body = bytes.fromhex(entry["stored_body_hex"])
    uncompressed = stored(offset=7)
    packed = stored(offset=8, body=body, sys_flag=flag, properties={"TAGS": "t"})
    data = uncompressed + packed + stored(offset=9)
    rows = rows_of(data, "offset", "value", "tags", "sysFlag")
    assert [row["offset"] for row in rows] == [7, 8, 9]
    assert rows[1]["value"].decode() == entry["body_text"]
    assert rows[1]["tags"] == "t"
    assert rows[1]["sysFlag"] == flag & ~1
    assert rows[0]["value"] == rows[2]["value"] == b"body"


@pytest.mark.parametrize("names", [2, 100])
def test_of_properties_with_one_name_the_last_counts(names: int) -> None:
    entries = [(f"name{number}", f"value{number}") for number in range(names)]
    texts = [*entries, ("name0", "again"), ("KEYS", "a"), ("KEYS", "b")]
    raw = b"".join(f"{name}\x01{value}\x02".encode() for name, value in texts)
    (row,) = rows_of(stored(properties=raw), "properties", "key", "keys")
    assert dict(row["properties"]) == dict(texts)
    assert len(row["properties"]) == names + 1
    assert (row["key"], row["keys"]) == ("b", ["b"])


OWN_NAMES = ["colour", "größe", "K", "KEYSX", "TAG"]
RECORDS = strategies.fixed_dictionaries(
    {
        "body": strategies.binary(max_size=400),
        "topic": strategies.sampled_from(["t", "o" * 127, "o" * 128, "%RETRY%" + "g" * 200]),
        "properties": strategies.dictionaries(
            strategies.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", *OWN_NAMES]),
            strategies.sampled_from(["", "a", "Stück", "x\x01y", "a b  c", "v" * 300, "😀"]),
        ),
        "flag": strategies.integers(-5, 5),
        "born_host": strategies.sampled_from([HOST_V4, HOST_V6]),
        "store_host": strategies.sampled_from([HOST_V4, HOST_V6]),
        "store_ms": strategies.integers(0, (1 << 42) - 1),
        "reconsume_times": strategies.integers(0, 16),
    }
)


@given(strategies.lists(RECORDS, max_size=40))
def test_many_records_of_all_shapes_equal_what_the_simple_reader_says(
    fields: list[dict[str, Any]],
) -> None:
    data = b"".join(stored(offset=offset, **each) for offset, each in enumerate(fields))
    rows, records = rows_of(data), decode_all(data)
    assert len(rows) == len(records) == len(fields)
    for row, record in zip(rows, records, strict=True):
        properties = record.properties
        assert row["value"] == record.body
        assert row["topic"] == record.topic
        assert row["queueId"] == record.queue_id
        assert row["offset"] == record.queue_offset
        assert row["flag"] == record.flag
        assert row["sysFlag"] == record.sys_flag
        assert row["timestamp"] == time(record.store_ms)
        assert row["reconsumeTimes"] == record.reconsume_times
        assert dict(row["properties"]) == properties
        assert row["key"] == properties.get("KEYS")
        assert row["tags"] == properties.get("TAGS")
        assert row["msgId"] == properties.get("UNIQ_KEY", record.offset_id)
        keys = properties.get("KEYS")
        assert row["keys"] == (None if keys is None else keys.split())
        own = {name: value for name, value in properties.items() if name in OWN_NAMES}
        headers = {each["key"]: each["value"].decode() for each in row["headers"] or ()}
        assert headers == own
        assert (row["headers"] is None) == (not own)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"KEYS\x01a\x02KEYS\x01b\x02", "b"),  # the last one counts
        (b"KEYS\x01a\x02KEYS\x01\x02", "a"),  # an empty value is none
        (b"KEYS\x01a", "a"),  # readers accept a missing end
        (b"TAGS\x01t\x02KEYS\x01a", "a"),
        (b"x\x01KEYS\x01a\x02", None),  # it stands in a value
        (b"xKEYS\x01a\x02", None),
        (b"KEYS\x01a\x01b\x02", "a\x01b"),  # the first one splits
        (b"KEYS\x02", None),
        (b"KEYS", None),
        (b"\x02\x02KEYS\x01a\x02", "a"),
        (b"\x01a\x02KEYS\x01b\x02", "b"),
        (b"", None),
        (b"KEYS\x01\xff\x02", "�"),
    ],
)
def test_a_property_string_is_read_as_java_reads_it(text: bytes, expected: str | None) -> None:
    before, after = (
        stored(0, properties=b"KEYS\x01before"),
        stored(2, properties=b"\x02KEYS\x01after\x02"),
    )
    data = before + stored(1, properties=text) + after
    rows = rows_of(data, "key", "properties")
    assert [row["key"] for row in rows] == ["before", expected, "after"]
    assert dict(rows[1]["properties"]).get("KEYS") == expected


def test_a_batch_in_one_record_becomes_a_row_for_each_of_its_messages() -> None:
    body = inner_batch(
        (b"one", {"TAGS": "a"}, 1), (b"", {}, 2), (b"three", {"KEYS": "k", "own": "v"}, 3)
    )
    packed = stored(offset=10, body=zlib.compress(body), sys_flag=0xC0 | 0x301)
    raw = stored(offset=13, body=inner_batch((b"four", {}, 4)), sys_flag=0xC0)
    data = packed + raw + stored(offset=14)
    rows = rows_of(data)
    assert [row["offset"] for row in rows] == [10, 11, 12, 13, 14]
    assert [row["value"] for row in rows] == [b"one", b"", b"three", b"four", b"body"]
    assert [row["flag"] for row in rows] == [1, 2, 3, 4, 0]
    assert [row["tags"] for row in rows] == ["a", None, None, None, None]
    assert rows[2]["key"] == "k"
    assert rows[2]["headers"] == [{"key": "own", "value": b"v"}]
    assert {row["topic"] for row in rows} == {"orders"}
    # Pulls that begin inside of a batch bring the whole batch, each of them.
    data = packed + packed + packed + raw
    assert [row["offset"] for row in rows_of(data, "offset", first=11, end=14)] == [11, 12, 13]


def test_no_bytes_are_no_rows() -> None:
    assert rows_of(b"") == []


def test_a_range_that_holds_no_record_gives_no_rows() -> None:
    assert rows_of(stored(offset=5), first=6) == []


def damaged(record: bytes, at: int, new: bytes) -> bytes:
    return record[:at] + new + record[at + len(new) :]


RECORD = stored(body=b"0123456789", properties={"KEYS": "k"})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (RECORD + RECORD[:-1], "cut off"),
        (RECORD + RECORD[:50], "50 bytes are left"),
        (damaged(RECORD, 0, bytes(4)), "says it is 0 bytes"),
        (damaged(RECORD, 0, b"\xff\xff\xff\xf0"), "says it is -16 bytes"),
        (damaged(RECORD, 4, b"\xcb\xd4\x31\x94"), "unknown magic CBD43194"),
        (damaged(RECORD, 84, b"\x00\x00\x01\x00"), "a body of 256 bytes"),
        (damaged(RECORD, 84, b"\x80\x00\x00\x00"), "a body of -2147483648 bytes"),
        (damaged(RECORD, 98, b"\x7f"), "a topic of 127 bytes"),
        (damaged(RECORD, 98, b"\x05"), "bytes of properties and room for"),
        (damaged(RECORD, 36, b"\x00\x00\x00\x30"), "too short for"),
    ],
)
def test_bytes_that_are_no_records_are_refused_with_the_place(data: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        rows_of(data)


def test_every_cut_of_two_records_is_refused() -> None:
    data = RECORD + RECORD
    for length in range(1, len(data)):
        if length != len(RECORD):
            with pytest.raises(Malformed):
                rows_of(data[:length])


@pytest.mark.parametrize(
    ("body", "flag", "words"),
    [
        (b"no stream", 0x301, "queue offset 4 of topic orders does not unpack"),
        (zlib.compress(b"x" * 1000)[:-6], 0x1, "is cut off"),
        (lz4(b"x" * 1000)[:20], 0x101, "does not unpack"),
        (zstd(b"x" * 1000)[:-4], 0x201, "does not unpack"),
        (b"whatever", 0x501, "compression kind 5 is unknown"),
        (inner_batch((b"one", {}, 0))[:-1], 0xC0, "does not unpack"),
        (inner_batch((b"one", {"a": "b"}, 0))[:-1], 0xC0, "properties of 4 bytes at 25 run over"),
    ],
)
def test_a_body_that_does_not_unpack_is_refused(body: bytes, flag: int, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        rows_of(stored(offset=4, body=body, sys_flag=flag))


@pytest.mark.parametrize(
    ("pack", "flag"),
    [(zlib.compress, 0x301), (lz4, 0x101), (zstd, 0x201)],
    ids=["zlib", "lz4", "zstd"],
)
def test_a_body_that_unpacks_beyond_the_limit_is_refused(
    pack: Any, flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwrap, "UNPACKED_BODY_BYTES_MAX", 10_000)
    fitting = stored(body=pack(b"x" * 10_000), sys_flag=flag)
    assert rows_of(fitting, "value") == [{"value": b"x" * 10_000}]
    with pytest.raises(Malformed, match=r"unpacks? to more than the limit of 10000"):
        rows_of(stored(body=pack(b"x" * 10_001), sys_flag=flag))
