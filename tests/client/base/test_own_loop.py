"""A client is used and closed in the event loop in which it was started."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aerobee.client import (
    Admin,
    Consumer,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    SimpleConsumer,
)
from aerobee.client.base.lifecycle import Startable
from aerobee.client.cluster.cluster import other_loop
from aerobee.client.errors import ClientError
from aerobee.testing import LocalCluster

MESSAGE = Message("orders", b"x")
CALLS: dict[str, tuple[Callable[[str], Startable], Callable[..., Awaitable[object]]]] = {
    "send": (lambda at: Producer(at), lambda client: client.send(MESSAGE)),
    "batch": (lambda at: Producer(at), lambda client: client.send_batch([MESSAGE])),
    "request": (lambda at: Producer(at), lambda client: client.request(MESSAGE)),
    "receive": (
        lambda at: Consumer(at, group="g", topics=["orders"], start="earliest"),
        lambda client: client.receive(timeout=9),
    ),
    "poll": (lambda at: LitePullConsumer(at, group="g"), lambda client: client.poll(timeout=9)),
    "pop": (
        lambda at: SimpleConsumer(at, group="g", topics=["orders"]),
        lambda client: client.receive(timeout=9),
    ),
    "pull": (
        lambda at: PullConsumer(at, group="g"),
        lambda client: client.pull(MessageQueue("orders", "broker-a", 0), 0),
    ),
    "admin": (lambda at: Admin(at), lambda client: client.topics()),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_from_another_loop_is_refused(aerobee_cluster: LocalCluster, name: str) -> None:
    make, call = CALLS[name]

    async def started() -> Startable:
        client = make(aerobee_cluster.name_server)
        await client.start()
        return client

    async def elsewhere(client: Startable) -> None:
        with pytest.raises(ClientError, match="is another one than the caller's; start, use"):
            await call(client)
        with pytest.raises(ClientError, match="is another one than the caller's; start, use"):
            await client.close()

    with asyncio.Runner() as own:
        client = own.run(started())
        asyncio.run(elsewhere(client))
        own.run(client.close())


def test_the_error_says_that_the_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert "was started is closed; start, use and close a client in" in str(other_loop(loop))


async def test_a_thread_with_a_loop_of_its_own_is_refused(aerobee_cluster: LocalCluster) -> None:
    async with Producer(aerobee_cluster.name_server) as producer:
        await producer.send(MESSAGE)

        def elsewhere() -> None:
            asyncio.run(producer.send(MESSAGE))

        with pytest.raises(ClientError, match="is another one than the caller's"):
            await asyncio.to_thread(elsewhere)
        await producer.send(MESSAGE)
