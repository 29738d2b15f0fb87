"""What counts as a whole record of the log: every damage is seen."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.protocol.message.record import Record, decode_record, encode_record
from aerobee.store.files.segment import Segment
from aerobee.store.log.walk import whole_record

V4, V6 = bytes(8), bytes(20)
Place = Callable[[bytes], Segment]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """`place(data)`: a file of the log that has the data at its byte 100."""

    def places(data: bytes) -> Segment:
        (tmp_path / "log").write_bytes((bytes(100) + data).ljust(8192, b"\0"))
        return Segment(tmp_path / "log", 1000, 8192, writable=False)

    return places


def record(topic: str = "T", born: bytes = V4, store: bytes = V4) -> bytes:
    made = Record(
        0, 0, 0, 3, 4, 5, 1100, 0, 6, born, 7, store, 8, 9, b"the body", topic, b"a\x01b\x02"
    )
    return encode_record(made)


KINDS = {
    "plain": record(),
    "long topic": record("t" * 200),
    "ipv6": record(born=V6, store=V6),
    "ipv6 born": record(born=V6),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_record_is_read_as_the_decoder_reads_it(place: Place, kind: str) -> None:
    found = whole_record(place(KINDS[kind] + b"more"), 1100)
    expected = decode_record(KINDS[kind])
    assert found is not None
    assert (found.log_offset, found.size) == (1100, expected.size)
    assert (found.topic, found.queue_id, found.queue_offset) == (expected.topic, 3, 5)
    assert (found.sys_flag, found.store_ms) == (expected.sys_flag, 7)
    assert found.raw_properties == b"a\x01b\x02"


@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_off_record_is_whole(place: Place, kind: str) -> None:
    data = KINDS[kind]
    # The last bytes are of a property, which has no crc; recovery looks at those by sectors.
    for end in range(len(data) - 4):
        assert whole_record(place(data[:end]), 1100) is None, end


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_lengths_place_or_body_is_seen(place: Place, kind: str) -> None:
    data = KINDS[kind]
    body = data.index(b"the body")
    properties = data.index(b"a\x01b\x02")
    checked = [*range(12), *range(28, 36), *range(body - 4, body + 9), properties - 2]
    for at in checked:
        for bit in (0, 3, 7):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert whole_record(place(bytes(broken)), 1100) is None, (at, bit)


def test_a_record_of_another_place_is_not_whole(place: Place) -> None:
    assert whole_record(place(b"x" + record()), 1101) is None


def test_the_end_of_a_file_is_no_record(place: Place) -> None:
    segment = place(record())
    for at in (0, 1, 8, 90, 91):
        assert whole_record(segment, 1000 + 8192 - at) is None
