"""The two streams between master and slave: whole, byte by byte, with more behind."""

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.ha import CHUNK_BYTES_MAX, CHUNK_HEAD, REPORT, Chunks, Reports

# The layout of DefaultHAConnection, by hand: place 100, 3 bytes; then a sign of life at 103.
STREAM = bytes.fromhex("0000000000000064 00000003 616263 0000000000000067 00000000")
CHUNKS = [(100, b"abc"), (103, b"")]


def test_numbers_are_big_endian_and_side_by_side() -> None:
    sent = CHUNK_HEAD.pack(100, 3) + b"abc" + CHUNK_HEAD.pack(103, 0)
    assert sent == STREAM
    assert REPORT.pack(258) == bytes.fromhex("0000000000000102")


def test_chunks_come_whole_however_they_are_cut() -> None:
    assert Chunks().feed(STREAM) == CHUNKS
    reader = Chunks()
    assert [chunk for byte in STREAM for chunk in reader.feed(bytes([byte]))] == CHUNKS
    reader = Chunks()
    assert reader.feed(STREAM + STREAM[:14]) == CHUNKS
    assert reader.feed(STREAM[14:]) == CHUNKS


@pytest.mark.parametrize(
    ("place", "size"), [(-1, 0), (0, -1), (0, CHUNK_BYTES_MAX + 1), (1 << 62, 1 << 30)]
)
def test_a_chunk_that_no_master_sends_is_malformed_before_it_is_kept(place: int, size: int) -> None:
    with pytest.raises(Malformed, match=f"{size} bytes at {place} .*{CHUNK_BYTES_MAX}"):
        Chunks().feed(CHUNK_HEAD.pack(place, size))


def test_the_largest_chunk_is_taken() -> None:
    data = bytes(CHUNK_BYTES_MAX)
    assert Chunks().feed(CHUNK_HEAD.pack(0, len(data)) + data) == [(0, data)]


def test_of_reports_the_last_whole_one_counts() -> None:
    stream = b"".join(map(REPORT.pack, (1, 2, 3)))
    assert Reports().feed(stream) == 3
    reader = Reports()
    assert [reader.feed(bytes([byte])) for byte in stream] == [
        *[None] * 7, 1, *[None] * 7, 2, *[None] * 7, 3
    ]  # fmt: skip
    reader = Reports()
    assert reader.feed(stream[:20]) == 2
    assert reader.feed(stream[20:23]) is None
    assert reader.feed(stream[23:] + b"\0") == 3


def test_a_log_that_ends_before_its_beginning_is_malformed() -> None:
    with pytest.raises(Malformed, match="reported as -1"):
        Reports().feed(REPORT.pack(-1))
