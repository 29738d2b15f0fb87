"""Chunks for a batch: which may be added, when a batch pays, and whose chunk is whose."""

from typing import Any

import pytest
from aerobee.protocol.aio.chunks import CHUNKS_MIN, START, ChunkBatch, Chunks, joined
from aerobee.protocol.codec.frame import encode_request

SINGLE, MANY, OTHER = (encode_request(code, 1, {"a": "1"}, b"x") for code in (10, 20, 30))


def senders(count: int) -> list[object]:
    return [object() for _ in range(count)]


@pytest.fixture
def batch() -> ChunkBatch[object]:
    return ChunkBatch({SINGLE[START]: False, MANY[START]: True})


@pytest.mark.parametrize(
    ("chunk", "together", "alone"),
    [
        (SINGLE, True, False),
        (SINGLE * 3, True, False),
        (SINGLE * 4, True, True),
        (SINGLE + OTHER * 3, True, True),
        (MANY, True, True),
        (MANY[:-1], False, False),
        (SINGLE[:-1], False, False),
        (SINGLE[:15], False, False),
        (OTHER, False, False),
        (OTHER + SINGLE * 9, False, False),
        (b"", False, False),
    ],
)
def test_a_chunk_is_added_by_its_first_request(
    batch: ChunkBatch[object], chunk: bytes, together: bool, alone: bool
) -> None:
    (sender,) = senders(1)
    assert batch.add(sender, chunk, is_alone=True) is alone
    assert batch.add(sender, chunk, is_alone=False) is together
    assert batch.senders == [sender] * (alone + together)


@pytest.mark.parametrize(
    ("chunks", "pays"),
    [
        ([SINGLE], False),
        ([SINGLE] * CHUNKS_MIN, True),
        ([SINGLE, MANY], True),
        ([SINGLE * 4], True),
    ],
)
def test_a_batch_pays_for_many_chunks_or_one_with_many_requests(
    batch: ChunkBatch[object], chunks: list[bytes], pays: bool
) -> None:
    for sender, chunk in zip(senders(len(chunks)), chunks, strict=True):
        assert batch.add(sender, chunk, is_alone=False)
    found, found_pays = batch.take()
    assert (found.each(), found_pays) == (chunks, pays)
    assert batch.senders == []
    assert batch.take() == (Chunks([], b"", []), False)


def test_chunks_that_were_read_together_come_first(batch: ChunkBatch[object]) -> None:
    a, b, c = senders(3)
    together = joined([a, b], [SINGLE, MANY])
    batch.add_together(together)
    assert batch.senders == [a, b]
    assert batch.take()[0] is together
    batch.add_together(together)
    assert batch.add(c, SINGLE, is_alone=False)
    found, _ = batch.take()
    assert (found.senders, found.each()) == ([a, b, c], [SINGLE, MANY, SINGLE])


def test_a_connection_takes_its_chunk_out(batch: ChunkBatch[object]) -> None:
    a, b, c = senders(3)
    assert batch.remove(a) is None
    batch.add_together(joined([a, b], [SINGLE, MANY]))
    assert batch.add(c, SINGLE, is_alone=False)
    found: list[Any] = [batch.remove(each) for each in (c, a, a)]
    assert found == [None, SINGLE, None]
    assert batch.senders == [b, c]
    assert batch.remove(b) == MANY
    chunks, _ = batch.take()
    assert (chunks.senders, chunks.each()) == ([c], [SINGLE])
