"""Damaged frames and odd metadata, with both libraries of HTTP/2."""

import asyncio
import string
from random import Random
from typing import Any

import hpack
import pytest
from aerobee.proxy.http2 import connection as server_side

from ..random_cases import damaged
from .peer import MESSAGE_MAX, Service
from .test_bad_peers import END_HEADERS, HEADERS, PREFACE, SETTINGS, Wire, dialogue, frame

pytestmark = pytest.mark.usefixtures("each_library")

DIALOGUES, METADATA = 400, 2_000  # with each library
TOGETHER = 20  # calls of one connection
TICKS = 8  # of the loop for a connection's calls to be answered
END_STREAM = 1
LETTERS = (string.ascii_lowercase + string.digits + "-_.").encode()


async def ended_by(pieces: list[bytes]) -> int:
    """How many calls a connection ends that gets these bytes and is lost after a few ticks."""
    shared = server_side.Shared(Service().methods(), MESSAGE_MAX)
    served = server_side.Http2Connection(shared)
    wire: Any = Wire()
    served.connection_made(wire)
    for piece in pieces:
        served.data_received(piece)
    for _ in range(TICKS):
        await asyncio.sleep(0)
    ended = sum(shared.ended.values())
    served.connection_lost(None)
    await asyncio.gather(*shared.tasks, return_exceptions=True)
    assert not served.calls
    assert shared.arriving_bytes == 0
    return ended


def test_damaged_frames_end_in_answers_or_the_end_of_their_connection() -> None:
    said, _ = dialogue()

    async def all_of(random: Random) -> None:
        for _ in range(DIALOGUES):
            at = random.randrange(len(PREFACE), len(said))
            piece = damaged(random, said[at : at + random.randint(1, 40)])
            await ended_by([said[:at], piece + said[at + len(piece) :]])

    asyncio.run(all_of(Random(7)))


def test_odd_metadata_leaves_no_call_behind() -> None:
    """Known headers with odd values, unknown headers, bytes that are no UTF-8."""

    def headers(random: Random) -> list[tuple[bytes, bytes]]:
        known = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": b"/t/echo",
            b":authority": b"x",
            b"content-type": b"application/grpc",
        }
        for each in random.sample(sorted(known), random.randint(0, 2)):
            known[each] = random.randbytes(random.randrange(12))
        if random.random() < 0.5:
            known[b"grpc-timeout"] = random.randbytes(random.randrange(10))
        found = list(known.items())
        for _ in range(random.randrange(6)):
            key = bytes(random.choices(LETTERS, k=random.randint(1, 20)))
            found.append((key, random.randbytes(random.randrange(40))))
        return found

    async def all_of(random: Random) -> None:
        for _ in range(METADATA // TOGETHER):
            encoder = hpack.Encoder()
            said = PREFACE + frame(SETTINGS, 0, 0)
            for number in range(TOGETHER):
                block = encoder.encode(headers(random))
                said += frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, block)
            assert await ended_by([said]) <= TOGETHER

    asyncio.run(all_of(Random(11)))
