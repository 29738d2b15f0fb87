"""Where a queue is pulled when its brokers are a master and a slave."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aerobee.client.group import pull as pulls
from aerobee.client.group.process_queue import Limits, ProcessQueue
from aerobee.client.group.pull import NOT_HERE_SECONDS, Puller, PullSettings
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command

from ..fakes import pulled, record

WANTED = subscription("orders", "*")
MASTER, SLAVE = "m:1", "s:1"


class TwoBrokers:
    """A cluster of a master and a slave; `answers` is what each says."""

    def __init__(self) -> None:
        self.known = {0: MASTER, 1: SLAVE}
        self.asked: list[str] = []
        self.routes = 0  # asked for anew
        self.answers: dict[str, Callable[[], Any]] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def address_for(self, queue: MessageQueue, broker_id: int, *, only: bool) -> str:
        assert not only
        return self.known.get(broker_id) or self.known[min(self.known)]

    async def route(self, topic: str, *, fresh: bool) -> None:
        assert (topic, fresh) == ("orders", True)
        self.routes += 1

    async def request(self, address: str, *_: Any, timeout_s: float) -> Command:
        self.asked.append(address)
        reply = self.answers[address]()
        return Command(code=reply.code, flag=1, opaque=1, ext=reply.fields, body=reply.body)


class Offsets:
    def __init__(self) -> None:
        self.updates: list[int] = []

    def in_memory(self, queue: MessageQueue) -> int:
        return -1

    def update(self, queue: MessageQueue, offset: int) -> None:
        self.updates.append(offset)


def message(suggested: int) -> Any:
    return pulled([record(0)], 1, extra={"suggestWhichBrokerId": str(suggested)})


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rests that were taken, which take no time."""
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(pulls.asyncio, "sleep", sleep)
    return rests


def made() -> tuple[TwoBrokers, Puller, ProcessQueue]:
    cluster = TwoBrokers()
    puller = Puller(cluster, "g", Offsets(), PullSettings())  # type: ignore[arg-type]
    return cluster, puller, ProcessQueue(MessageQueue("orders", "a", 0), 0, Limits())


async def test_the_broker_that_the_last_answer_suggests_is_asked_next(slept: list[float]) -> None:
    cluster, puller, held = made()
    cluster.answers = {
        MASTER: lambda: message(1),
        SLAVE: lambda: pulled(next_offset=1, code=codes.PULL_RETRY_IMMEDIATELY),
    }
    for _ in range(3):
        await puller.pull(held, WANTED)
    assert cluster.asked == [MASTER, SLAVE, MASTER]
    assert slept == []


@pytest.mark.requirement("Store: Reading on from a slave while the master is gone, and going back")
async def test_a_slave_that_sends_us_to_a_master_that_is_gone_is_asked_after_a_rest(
    slept: list[float],
) -> None:
    cluster, puller, held = made()
    del cluster.known[0]
    nothing = lambda: pulled(next_offset=held.next_offset, code=codes.PULL_RETRY_IMMEDIATELY)  # noqa: E731
    cluster.answers = {SLAVE: lambda: message(0)}
    assert len(await puller.pull(held, WANTED)) == 1
    cluster.answers = {SLAVE: nothing}
    await puller.pull(held, WANTED)
    assert cluster.asked == [SLAVE, SLAVE]
    assert (slept, cluster.routes, held.next_offset) == ([NOT_HERE_SECONDS], 1, 1)


async def test_what_did_not_match_is_passed_over_at_once(slept: list[float]) -> None:
    cluster, puller, held = made()
    cluster.answers = {MASTER: lambda: pulled(next_offset=9, code=codes.PULL_RETRY_IMMEDIATELY)}
    await puller.pull(held, WANTED)
    assert (slept, held.next_offset) == ([], 9)


@pytest.mark.parametrize(
    "brought", [message(0), pulled(next_offset=9, code=codes.PULL_NOT_FOUND)], ids=["some", "none"]
)
async def test_what_comes_after_the_queue_was_lost_counts_for_nothing(brought: Any) -> None:
    cluster, offsets = TwoBrokers(), Offsets()
    puller = Puller(cluster, "g", offsets, PullSettings())  # type: ignore[arg-type]
    held = ProcessQueue(MessageQueue("orders", "a", 0), 0, Limits())

    def answer() -> Any:
        held.drop()  # while the pull is under way
        return brought

    cluster.answers = {MASTER: answer}
    assert await puller.pull(held, WANTED) == []
    assert (held.count, held.next_offset, offsets.updates) == (0, 0, [])
