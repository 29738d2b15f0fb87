"""How `aerobee sub` waits for a broker that doesn't answer."""

import asyncio
import logging

import pytest
from aerobee.client import MessageQueue
from aerobee.client.base.start_from import FIRST, StartFrom
from aerobee.client.errors import UnreachableError
from aerobee.scripts.commands import sub

from ...waiting import LONG

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in (0, 1)]


class Readers:
    """A topic on two brokers of which no one answers for a while."""

    def __init__(self, tries: int) -> None:
        self.left = tries
        self.done = asyncio.Event()

    async def queues(self, topic: str) -> list[MessageQueue]:
        return QUEUES

    async def min_offset(self, queue: MessageQueue) -> int:
        return 0

    async def pull(self, queue: MessageQueue, offset: int, count: int) -> None:
        self.left -= 1
        if self.left < 0:
            self.done.set()
            await asyncio.Event().wait()
        raise UnreachableError(f"can't connect to {queue.broker_name}")


async def test_a_broker_that_is_away_is_told_once_and_not_for_each_try(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sub, "RETRY_SECONDS", 0)
    readers = Readers(tries=40)
    watch = sub._Watch(readers, "T", StartFrom(FIRST))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        watch.begin()
        async with asyncio.timeout(LONG):
            await readers.done.wait()
        await watch.end()
    assert sorted(caplog.messages) == [
        f"can't connect to {broker}; trying again until it answers" for broker in ("a", "b")
    ]
