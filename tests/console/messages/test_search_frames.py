"""The frames between the console and the process of its searches."""

import asyncio

import msgspec
import pytest
from aerobee.console.messages.search import Progress
from aerobee.console.messages.search_frames import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    Batch,
    batch_of,
    frame,
    read_frame,
)
from aerobee.console.texts import Text
from aerobee.protocol.message.record import decode_record

from ...client.fakes import record


def pipe(data: bytes) -> asyncio.StreamReader:
    found = asyncio.StreamReader()
    found.feed_data(data)
    found.feed_eof()
    return found


async def test_a_batch_arrives_as_it_was() -> None:
    why = Text("cut at %(place)s", place=Text("queue %(number)s", number=3))
    progress = Progress(5, 1, 4, why, "cursor", ["a broker's remark", why])
    one = decode_record(record(3, b"\xff\xfe", raw_properties=b"k\x01\xff\x02"))
    body = await read_frame(pipe(frame(batch_of(7, [one], progress))))
    assert body is not None
    found = msgspec.msgpack.decode(body, type=Batch)
    assert (found.number, found.found) == (7, [one])
    assert found.progress() == progress
    again = found.progress().why
    assert isinstance(again, Text)
    assert (again.pattern, again.values) == (why.pattern, why.values)
    assert isinstance(again.values["place"], Text)


async def test_the_end_and_a_frame_that_is_cut_off_are_the_end() -> None:
    assert await read_frame(pipe(b"")) is None
    assert await read_frame(pipe(frame(Batch(1))[:-1])) is None


async def test_a_frame_beyond_the_limit_is_refused() -> None:
    size = FRAME_BYTES_MAX + 1
    with pytest.raises(ValueError, match=f"has {size:,} bytes, the limit is {FRAME_BYTES_MAX:,}"):
        await read_frame(pipe(size.to_bytes(LENGTH_BYTES, "big")))
