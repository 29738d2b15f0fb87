"""A pull: the choice between master and slave, and requests sent ahead."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from aerobee.client.errors import ClientError, NoRouteError
from aerobee.client.group.process_queue import Limits, ProcessQueue
from aerobee.client.group.pull import NOT_HERE_SECONDS, Puller, PullSettings
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command, Response, read_ext

from ..fakes import pulled, record

WANTED = subscription("orders", "*")
MASTER, SLAVE = "m:1", "s:1"


class Connected:
    """An open connection; `sent` has the offsets and responses of the pulls sent over it."""

    is_lost = is_full = False

    def __init__(self) -> None:
        self.sent: list[tuple[str, asyncio.Future[Command]]] = []
        self.on_request: Callable[[], None] = lambda: None

    def request(self, code: int, fields: dict[str, str], *_: object) -> asyncio.Future[Command]:
        assert code == codes.PULL_MESSAGE
        response: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.sent.append((fields["queueOffset"], response))
        self.on_request()
        return response


class TwoBrokers:
    """A cluster of a master and a slave; `answers` makes the response of each."""

    def __init__(self) -> None:
        self.known = {0: MASTER, 1: SLAVE}
        self.asked: list[str] = []
        self.routes = 0  # the number of route refreshes
        self.answers: dict[str, Callable[[], Response]] = {}
        self.connection = Connected()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def address_for(self, queue: MessageQueue, broker_id: int, *, only: bool) -> str:
        assert not only
        return self.known.get(broker_id) or self.known[min(self.known)]

    async def route(self, topic: str, *, fresh: bool) -> None:
        assert (topic, fresh) == ("orders", True)
        self.routes += 1

    def connected(self, address: str) -> "Connected":
        return self.connection

    async def request(
        self, address: str, *_: object, timeout_s: float, begun: asyncio.Future[Command] | None
    ) -> Command:
        if begun is not None:
            return await begun
        self.asked.append(address)
        return received(self.answers[address]())


class Offsets:
    def __init__(self) -> None:
        self.updates: list[int] = []

    def in_memory(self, queue: MessageQueue) -> int:
        return -1

    def update(self, queue: MessageQueue, offset: int) -> None:
        self.updates.append(offset)


def received(response: Response) -> Command:
    """A response as a connection gives it to its requester."""
    assert isinstance(response.body, bytes)
    ext = read_ext(response.fields)
    return Command(code=response.code, flag=1, opaque=1, ext=ext, body=response.body)


def message(suggested: int) -> Response:
    return pulled([record(0)], 1, extra={"suggestWhichBrokerId": str(suggested)})


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Makes sleeps return at once; lists their seconds."""
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return rests


def made() -> tuple[TwoBrokers, Puller, ProcessQueue]:
    cluster = TwoBrokers()
    puller = Puller(cluster, "g", Offsets(), PullSettings())  # type: ignore[arg-type]
    return cluster, puller, ProcessQueue(MessageQueue("orders", "a", 0), 0, Limits())


async def test_the_next_pull_goes_to_the_broker_suggested_by_the_last_response(
    slept: list[float],
) -> None:
    cluster, puller, process_queue = made()
    cluster.answers = {
        MASTER: lambda: message(1),
        SLAVE: lambda: pulled(next_offset=1, code=codes.PULL_RETRY_IMMEDIATELY),
    }
    for _ in range(3):
        await puller.pull(process_queue, WANTED)
    assert cluster.asked == [MASTER, SLAVE, MASTER]
    assert slept == []


async def test_a_slave_that_suggests_an_absent_master_is_pulled_after_a_pause(
    slept: list[float],
) -> None:
    cluster, puller, process_queue = made()
    del cluster.known[0]

    def nothing() -> Response:
        return pulled(next_offset=process_queue.next_offset, code=codes.PULL_RETRY_IMMEDIATELY)

    cluster.answers = {SLAVE: lambda: message(0)}
    assert len(await puller.pull(process_queue, WANTED)) == 1
    cluster.answers = {SLAVE: nothing}
    await puller.pull(process_queue, WANTED)
    assert cluster.asked == [SLAVE, SLAVE]
    assert (slept, cluster.routes, process_queue.next_offset) == ([NOT_HERE_SECONDS], 1, 1)


async def test_messages_without_a_match_are_skipped_without_a_pause(slept: list[float]) -> None:
    cluster, puller, process_queue = made()
    cluster.answers = {MASTER: lambda: pulled(next_offset=9, code=codes.PULL_RETRY_IMMEDIATELY)}
    await puller.pull(process_queue, WANTED)
    assert (slept, process_queue.next_offset) == ([], 9)


@pytest.mark.parametrize(
    "brought", [message(0), pulled(next_offset=9, code=codes.PULL_NOT_FOUND)], ids=["some", "none"]
)
async def test_a_response_for_a_lost_queue_is_ignored(brought: Response) -> None:
    cluster, offsets = TwoBrokers(), Offsets()
    puller = Puller(cluster, "g", offsets, PullSettings())  # type: ignore[arg-type]
    process_queue = ProcessQueue(MessageQueue("orders", "a", 0), 0, Limits())

    def answer() -> Response:
        process_queue.drop()  # while the pull is in flight
        return brought

    cluster.answers = {MASTER: answer}
    assert await puller.pull(process_queue, WANTED) == []
    assert (process_queue.count, process_queue.next_offset, offsets.updates) == (0, 0, [])


def always() -> bool:
    return True


async def test_messages_are_dropped_if_their_queue_is_lost_while_the_next_pull_is_sent() -> None:
    cluster, puller, process_queue = made()
    cluster.answers = {MASTER: lambda: pulled([record(0)], 1)}
    cluster.connection.on_request = process_queue.drop
    assert await puller.pull(process_queue, WANTED, always) == []
    assert (len(cluster.connection.sent), process_queue.count) == (1, 0)


async def test_the_next_pull_is_sent_before_the_messages_are_handed_out() -> None:
    cluster, puller, process_queue = made()
    cluster.answers = {MASTER: lambda: pulled([record(0), record(1)], 2)}
    assert len(await puller.pull(process_queue, WANTED, always)) == 2
    ((offset, response),) = cluster.connection.sent
    assert (offset, puller.is_ahead(process_queue)) == ("2", True)
    response.set_result(received(pulled([record(2)], 3)))
    (third,) = await puller.pull(process_queue, WANTED)
    assert (third.queue_offset, cluster.asked, process_queue.next_offset) == (2, [MASTER], 3)
    assert not puller.is_ahead(process_queue)


@pytest.mark.parametrize(
    "limits", [Limits(messages_max=31), Limits(bytes_max=1), Limits(span_max=1)]
)
async def test_no_pull_is_sent_ahead_of_messages_that_may_fill_the_queue(limits: Limits) -> None:
    cluster, puller, process_queue = made()
    process_queue.limit(limits)
    cluster.answers = {MASTER: lambda: pulled([record(0), record(1)], 2)}
    assert len(await puller.pull(process_queue, WANTED, always)) == 2
    assert (cluster.connection.sent, puller.is_ahead(process_queue)) == ([], False)


async def test_messages_are_handed_out_when_their_broker_leaves_the_route_meanwhile() -> None:
    """The next pull has nowhere to go then; these messages would be committed and never seen."""
    cluster, puller, process_queue = made()

    def gone(*_: object, only: bool) -> str:
        raise NoRouteError("broker m is in no route")

    def answer() -> Response:
        cluster.address_for = gone  # type: ignore[method-assign,assignment]
        return pulled([record(0), record(1)], 2)

    cluster.answers = {MASTER: answer}
    assert len(await puller.pull(process_queue, WANTED, always)) == 2
    assert (process_queue.next_offset, puller.is_ahead(process_queue)) == (2, False)


async def test_a_pull_sent_ahead_is_dropped_if_the_messages_before_it_cannot_be_read() -> None:
    cluster, puller, process_queue = made()
    cluster.answers = {MASTER: lambda: pulled([b"no record"], 2)}
    with pytest.raises(ClientError, match="messages from offset 0 on"):
        await puller.pull(process_queue, WANTED, always)
    ((_, response),) = cluster.connection.sent
    assert response.cancelled()
    assert (process_queue.next_offset, puller.is_ahead(process_queue)) == (0, False)


async def test_abandon_drops_a_pull_sent_ahead() -> None:
    cluster, puller, process_queue = made()
    cluster.answers = {MASTER: lambda: pulled([record(0)], 1)}
    await puller.pull(process_queue, WANTED, always)
    puller.abandon(process_queue)
    puller.abandon(process_queue)
    ((_, response),) = cluster.connection.sent
    assert (response.cancelled(), puller.is_ahead(process_queue)) == (True, False)


async def test_abandon_takes_the_error_of_a_pull_sent_ahead() -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    cluster, puller, process_queue = made()
    cluster.answers = {MASTER: lambda: pulled([record(0)], 1)}
    await puller.pull(process_queue, WANTED, always)
    cluster.connection.sent.pop()[1].set_exception(ConnectionResetError("closed"))
    puller.abandon(process_queue)
    gc.collect()
    assert unhandled == []
