"""A live view of more messages than a page can show: a stated sample, that begins at the end."""

import asyncio
import re
from contextlib import aclosing
from typing import Any

import pytest
from aerobee.client.errors import ClientError, NoRouteError
from aerobee.client.pull.reader import Pulled
from aerobee.console.messages import tail as module
from aerobee.console.messages.tail import PULL_MESSAGES, ROWS_MAX, tail
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.command import Command, Response
from aerobee.protocol.message.record import decode_all, encode_record
from msgspec import structs

from ...client.fakes import pulled, record
from ...waiting import LONG
from ..fake_cluster import Shop
from ..web.site import Parsed, Site

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


class Flood:
    """A reader of queues that had `begin` messages and have `end` since. It gives 32 messages a
    pull, as RocketMQ's brokers do."""

    def __init__(self, begin: int, end: int) -> None:
        self.ends = dict.fromkeys(QUEUES, begin)
        self.pulled: list[tuple[int, int]] = []  # queue and offset
        self._then = end

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in QUEUES if queue.topic == topic]

    async def max_offset(self, queue: MessageQueue) -> int:
        found, self.ends[queue] = self.ends[queue], self._then
        return found

    async def pull(self, queue: MessageQueue, offset: int, most: int) -> Pulled:
        self.pulled.append((queue.queue_id, offset))
        end = self.ends[queue]
        found = range(offset, min(offset + 32, offset + most, end))
        body = b"".join(stored(queue.queue_id, one) for one in found)
        code = codes.SUCCESS if found else codes.PULL_NOT_FOUND
        return Pulled(code, offset + len(found), 0, end, body)


def stored(queue_id: int, offset: int) -> bytes:
    """A message that was stored at its offset in ms."""
    (one,) = decode_all(record(offset, queue_id=queue_id))
    return encode_record(structs.replace(one, store_ms=offset))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_SECONDS", 0)


async def steps(reader: Any, count: int) -> list[module.Step]:
    """The first steps of a live view."""
    async with aclosing(tail(reader, "orders", None)) as found, asyncio.timeout(LONG):  # type: ignore[type-var]
        return [await anext(found) for _ in range(count)]


async def test_a_step_shows_the_newest_and_counts_all_that_came() -> None:
    reader = Flood(100, 132)
    (first, second) = await steps(reader, 2)
    assert (len(first.records), first.seen) == (ROWS_MAX, 64)
    # The newest of both queues, in the order of their times.
    assert [one.queue_offset for one in first.records[-4:]] == [130, 130, 131, 131]
    assert first.records[0].queue_offset == 132 - ROWS_MAX // 2
    assert (second.records, second.seen) == ([], 0)


async def test_a_queue_that_falls_behind_goes_on_at_its_end_and_what_it_leaves_out_is_counted() -> (
    None
):
    came = 5_000
    reader = Flood(100, 100 + came)
    found = await steps(reader, 3)
    assert [one.seen for one in found] == [came * len(QUEUES), 0, 0]
    assert len(found[0].records) == ROWS_MAX
    assert reader.pulled[:4] == [(0, 100), (1, 100), (0, 100 + came), (1, 100 + came)]


async def test_a_little_that_is_behind_is_read_on() -> None:
    reader = Flood(0, 32 + PULL_MESSAGES)
    found = await steps(reader, 1 + PULL_MESSAGES // 32)
    assert sum(one.seen for one in found) == (32 + PULL_MESSAGES) * len(QUEUES)
    assert reader.pulled[2] == (0, 32)


async def test_a_queue_that_can_not_be_read_is_named_and_the_other_is_shown() -> None:
    class Half(Flood):
        async def pull(self, queue: MessageQueue, offset: int, most: int) -> Pulled:
            if queue.queue_id == 0:
                raise ClientError("broker-a is away")
            return await super().pull(queue, offset, most)

    (step,) = await steps(Half(0, 3), 1)
    assert (len(step.records), step.seen) == (3, 3)
    assert step.gone == {"broker-a": "broker-a is away"}


async def test_a_broker_that_goes_and_comes_back_is_told_once_each_and_nothing_is_left_out() -> (
    None
):
    class Changing(Flood):
        is_away = True

        async def max_offset(self, queue: MessageQueue) -> int:
            self.check(queue)
            return await super().max_offset(queue)

        async def pull(self, queue: MessageQueue, offset: int, most: int) -> Pulled:
            self.check(queue)
            return await super().pull(queue, offset, most)

        def check(self, queue: MessageQueue) -> None:
            if self.is_away and queue.queue_id == 1:
                raise ClientError("it is away")

    reader = Changing(3, 3)
    found: list[module.Step] = []
    async with aclosing(tail(reader, "orders", None)) as coming, asyncio.timeout(LONG):  # type: ignore[arg-type,type-var]
        for number in range(6):
            reader.is_away = number not in (2, 5)
            if number == 4:
                reader.ends = dict.fromkeys(QUEUES, 5)  # 2 messages for each while one is away
            found.append(await anext(coming))
    told = {"broker-a": "it is away"}
    assert [one.gone for one in found] == [told, {}, {}, told, {}, {}]
    assert [one.back for one in found] == [[], [], ["broker-a"], [], [], ["broker-a"]]
    assert [one.seen for one in found] == [0, 0, 0, 0, 2, 2]


async def test_a_broker_without_a_queue_in_the_list_is_told_and_looked_for_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Growing(Flood):
        shown: tuple[MessageQueue, ...] = ()

        async def queues(self, topic: str) -> list[MessageQueue]:
            if not self.shown:
                raise NoRouteError("no broker has it")
            return [*self.shown]

    away = {"broker-a": "not listed"}
    reader = Growing(0, 4)
    async with (
        aclosing(tail(reader, "orders", None, lambda: away)) as coming,  # type: ignore[arg-type,type-var]
        asyncio.timeout(LONG),
    ):
        first = await anext(coming)
        away, reader.shown = {}, tuple(QUEUES)
        second, third = await anext(coming), await anext(coming)
    assert (first.gone, first.back) == ({"broker-a": "not listed"}, [])
    assert (second.gone, second.back, second.seen) == ({}, ["broker-a"], 0)
    assert (third.gone, third.back, third.seen) == ({}, [], 8)


async def test_an_event_of_a_page_has_a_bounded_number_of_rows_and_says_how_many_came() -> None:
    shop = Shop("orders")

    def pull(command: Command, _: object) -> Response:
        fields = command.fields()
        if (fields["queueId"], fields["queueOffset"]) != ("0", "4"):
            return pulled([], 2_004, codes.PULL_NOT_FOUND)
        found = [record(4 + number, b"x" * 100) for number in range(PULL_MESSAGES)]
        return pulled(found, 4 + PULL_MESSAGES, extra={"maxOffset": "2004"})

    shop.broker.answers[codes.PULL_MESSAGE] = pull
    await shop.start()
    async with Site({"main": shop.address}) as site, asyncio.timeout(LONG):
        url = f"{site.console.url}tail/events?topic=orders"
        async with site.session.get(url) as answer:
            event = ""
            while "came" not in event:
                event += (await answer.content.readline()).decode()
    await shop.stop()
    found = Parsed(re.sub("(?m)^data: ", "", event))
    assert sum(tag == "tr" for tag, _ in found.elements) == ROWS_MAX + 1
    assert f"2,000 came, {ROWS_MAX} of them are shown" in found.text
