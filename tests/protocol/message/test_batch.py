"""Batch bodies against the bytes that the real classes made, and against broken ones."""

import json
from pathlib import Path

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch, split_batch, unwrap
from aerobee.protocol.message.record import INNER_BATCH, NEED_UNWRAP, Record

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "batch_and_properties.json").read_text()
)
(BATCH,) = [vector for vector in GOLDEN if "parts" in vector]
DATA = bytes.fromhex(BATCH["hex"])


def test_a_batch_of_java_is_split_into_its_messages() -> None:
    entries = split_batch(DATA)
    assert len(entries) == 3
    for entry, part in zip(entries, BATCH["parts"], strict=True):
        assert entry.flag == part["flag"]
        assert entry.body == part["body"].encode()
        assert properties.decode(entry.raw_properties) == part["properties"]
        assert encode_batch([entry]) == bytes.fromhex(part["hex"])


def test_a_batch_is_written_as_java_writes_it() -> None:
    assert encode_batch(split_batch(DATA)) == DATA
    assert encode_batch([]) == b""


def test_a_batch_cut_anywhere_but_between_messages_is_malformed() -> None:
    starts = {0}
    for part in BATCH["parts"]:
        starts.add(max(starts) + len(part["hex"]) // 2)
    for end in range(len(DATA)):
        if end in starts:
            assert encode_batch(split_batch(DATA[:end])) == DATA[:end]
            continue
        with pytest.raises(Malformed):
            split_batch(DATA[:end])


def test_negative_lengths_are_malformed() -> None:
    broken = bytearray(encode_batch([Entry(0, b"body", b"a\x01b\x02")]))
    broken[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(Malformed, match="body"):
        split_batch(broken)
    broken = bytearray(encode_batch([Entry(0, b"body", b"a\x01b\x02")]))
    broken[24:26] = b"\xff\xff"
    with pytest.raises(Malformed, match="properties"):
        split_batch(broken)


def test_an_inner_batch_unwraps_to_messages_with_offsets_of_their_own() -> None:
    flags = INNER_BATCH | NEED_UNWRAP
    wrapped = Record(
        0, 0, 0, 2, 0, 40, 1000, flags, 7, bytes(8), 8, bytes(8), 0, 0, DATA, "t", b"x\x01y\x02"
    )
    inner = unwrap(wrapped)
    assert [record.queue_offset for record in inner] == [40, 41, 42]
    assert [record.body for record in inner] == [b"body-0", b"body-1", b"body-2"]
    assert {(record.log_offset, record.sys_flag, record.topic) for record in inner} == {
        (1000, 0, "t")
    }
    plain = inner[0]
    assert unwrap(plain) == [plain]
