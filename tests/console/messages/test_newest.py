"""A search that begins at the end: its order over all queues, its limits, and how it goes on."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import pytest
from aerobee.client.errors import ClientError
from aerobee.client.pull.reader import Pulled, Reader
from aerobee.console.messages.newest import newest_first
from aerobee.console.messages.search import BadCursor, Progress, places
from aerobee.console.times import TIME_MS_MAX
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.message.record import Record, decode_all, encode_record

from ...client.fakes import record


@dataclass
class Shelf:
    """Stands for a reader: queues with the store times of their messages, of which a pull gives
    `most` at once. The broker of a queue in `away` does not answer."""

    queues_of: list[list[int]]
    most: int = 7
    away: int = -1
    pulls: int = 0

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "b", number) for number in range(len(self.queues_of))]

    async def min_offset(self, queue: MessageQueue) -> int:
        return 0

    async def max_offset(self, queue: MessageQueue) -> int:
        return len(self.queues_of[queue.queue_id])

    async def offset_at(self, queue: MessageQueue, ms: int) -> int:
        return sum(one < ms for one in self.queues_of[queue.queue_id])

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        self.pulls += 1
        if queue.queue_id == self.away:
            raise ClientError("the broker is away")
        times = self.queues_of[queue.queue_id]
        end = min(offset + max_messages, offset + self.most, len(times))
        body = b"".join(stored(queue.queue_id, at, times[at]) for at in range(offset, end))
        return Pulled(codes.SUCCESS, end, 0, len(times), body)


def stored(queue: int, offset: int, ms: int) -> bytes:
    """A message at its place, stored at a time."""
    (one,) = decode_all(record(offset, queue_id=queue))
    one.store_ms = ms
    return encode_record(one)


def shelf_of(seed: int) -> Shelf:
    """Queues whose times grow, some of them equal, and some queues empty."""
    dice = random.Random(seed)
    queues = []
    for _ in range(dice.randrange(1, 6)):
        times = sorted(dice.randrange(1, 120) for _ in range(dice.choice((0, 3, 40, 90))))
        queues.append(times)
    return Shelf(queues, most=dice.choice((1, 7, 100)))


async def result(steps: AsyncIterator[Record | Progress]) -> tuple[list[Record], Progress]:
    """What a search finds, and its last progress."""
    found, last = [], Progress()
    async for one in steps:
        if isinstance(one, Progress):
            last = one
        else:
            found.append(one)
    return found, last


def search(shelf: Shelf, **more: object) -> AsyncIterator[Record | Progress]:
    """The newest of all that lies on the shelf, within the limits that `more` has."""
    given = {"begin_ms": 0, "end_ms": TIME_MS_MAX, "matches": None, **more}
    return newest_first(cast(Reader, shelf), "orders", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(30))
async def test_pages_of_any_size_have_each_message_once_and_the_newest_first(seed: int) -> None:
    shelf = shelf_of(seed)
    times = sorted((ms for queue in shelf.queues_of for ms in queue), reverse=True)
    for size in (1, 13, 500):
        seen: list[Record] = []
        cursor: str | None = ""
        while cursor is not None:
            found, last = await result(search(shelf, cursor=cursor, hits_max=size))
            assert len(found) <= size
            seen += found
            assert last.scanned + last.left == len(times) - len(seen) + len(found)
            cursor = last.cursor
        assert [one.store_ms for one in seen] == times
        assert len({(one.queue_id, one.queue_offset) for one in seen}) == len(times)


async def test_a_queue_whose_clock_went_back_keeps_the_order_of_its_offsets() -> None:
    shelf = Shelf([[10, 50, 20, 60, 5]])
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        found, last = await result(search(shelf, cursor=cursor, hits_max=1))
        seen += [one.queue_offset for one in found]
        cursor = last.cursor
    assert seen == [4, 3, 2, 1, 0]


async def test_a_time_and_an_expression_are_kept_to() -> None:
    shelf = shelf_of(3)
    times = [ms for queue in shelf.queues_of for ms in queue if 20 <= ms < 90 and ms % 2 == 0]
    found, last = await result(
        search(shelf, begin_ms=20, end_ms=90, matches=lambda row: row.get("stored") % 2 == 0)
    )
    assert [one.store_ms for one in found] == sorted(times, reverse=True)
    assert (last.found, last.left, last.cursor) == (len(times), 0, None)


async def test_the_newest_few_need_few_requests() -> None:
    shelf = Shelf([list(range(number, 100_000, 8)) for number in range(8)], most=1_024)
    found, last = await result(search(shelf, hits_max=50))
    assert [one.store_ms for one in found] == list(range(99_999, 99_949, -1))
    assert shelf.pulls <= 16
    assert str(last.why) == "50 messages were found, the limit of one page"


async def test_a_search_that_has_read_enough_says_so_and_loses_nothing() -> None:
    shelf = Shelf([list(range(500)), list(range(500))])
    matches = {3, 250, 251, 499}
    seen: list[int] = []
    cursor: str | None = ""
    whys = []
    while cursor is not None:
        found, last = await result(
            search(
                shelf,
                cursor=cursor,
                hits_max=20,
                scanned_max=200,
                matches=lambda row: row.get("stored") in matches,
            )
        )
        seen += [one.store_ms for one in found]
        whys.append(str(last.why))
        cursor = last.cursor
    assert seen == [499, 499, 251, 251, 250, 250, 3, 3]
    assert whys[0] == "200 messages were looked at, the limit of one search"


async def test_a_queue_that_can_not_be_read_is_named_and_the_others_are_shown() -> None:
    shelf = Shelf([[1, 2], [3, 4]], away=1)
    found, last = await result(search(shelf))
    assert [one.store_ms for one in found] == [2, 1]
    assert [str(one) for one in last.faults] == ["queue 1 of b: the broker is away"]


async def test_a_cursor_that_is_none_is_refused() -> None:
    with pytest.raises(BadCursor, match="begin the search again without it"):
        await result(search(Shelf([[1]]), cursor="x"))


async def test_a_cursor_of_another_topic_is_refused() -> None:
    _, last = await result(search(Shelf([[1, 2, 3]]), hits_max=1))
    assert last.cursor is not None
    assert places(last.cursor, "orders")
    with pytest.raises(BadCursor, match="none of a search in other"):
        places(last.cursor, "other")
