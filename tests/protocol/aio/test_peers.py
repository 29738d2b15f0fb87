"""Outgoing connections whose server is down: retry pauses grow and have a random length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aerobee.protocol.aio.peers import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Peers
from aerobee.protocol.aio.server import Server

from ...clocks import Seconds
from ...waiting import until


@pytest.fixture
async def clock() -> Seconds:
    """The loop's time, which only the test moves."""
    loop = asyncio.get_running_loop()
    loop.time = clock = Seconds(loop.time())  # type: ignore[method-assign]
    return clock


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers()
    yield made
    await made.close()


@pytest.fixture
async def nobody() -> str:
    """An address where no server listens."""
    server = Server()
    port = await server.listen("127.0.0.1", 0, {})
    await server.stop()
    return f"127.0.0.1:{port}"


async def test_pauses_grow_to_a_second_and_are_of_random_length(
    peers: Peers, nobody: str, clock: Seconds
) -> None:
    with pytest.raises(ConnectionError):
        await peers.connect(nobody)
    for times in range(1, 8):
        longest = min(PAUSE_SECONDS * 2 ** (times - 1), PAUSE_SECONDS_MAX)
        began = clock.now
        with pytest.raises(ConnectionError, match=f"failures in a row: {times}, next try in"):
            await peers.connect(nobody)
        while True:
            clock.now += 0.01
            with pytest.raises(ConnectionError) as raised:
                await peers.connect(nobody)
            if "in a row" not in str(raised.value):
                break
        assert longest / 2 <= clock.now - began <= longest + 0.011


async def test_two_clients_pause_for_different_times(nobody: str, clock: Seconds) -> None:
    rests = set()
    for _ in range(5):
        client = Peers()
        for _ in range(2):
            with pytest.raises(ConnectionError) as raised:
                await client.connect(nobody)
        rests.add(str(raised.value).partition("next try in ")[2])
        await client.close()
    assert len(rests) > 1


async def test_a_returned_server_is_connected_after_the_pause_and_resets_the_pauses(
    peers: Peers, clock: Seconds
) -> None:
    server = Server()
    port = await server.listen("127.0.0.1", 0, {})
    await server.stop()
    address = f"127.0.0.1:{port}"
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await peers.connect(address)
        clock.now += 1
    again = Server()
    await again.listen("127.0.0.1", port, {})
    connection = await peers.connect(address)
    assert not connection.is_lost
    await again.stop()
    await until(lambda: connection.is_lost, "the connection is not lost")
    with pytest.raises(ConnectionError, match="can't connect"):
        await peers.connect(address)
    with pytest.raises(ConnectionError, match="failures in a row: 1"):
        await peers.connect(address)
