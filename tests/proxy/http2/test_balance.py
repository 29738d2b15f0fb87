"""Workers that share a port: each connection goes to the one with the fewest."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.proxy.http2.balance import Worker

from ...waiting import until
from .peer import Host, host

Pair = tuple[Host, Host]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Two workers, each on a port of its own: a test knows which of them accepts."""
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker(Path(folder), number, 2) for number in range(2)]
        async with host(worker=workers[0]) as one, host(worker=workers[1]) as other:
            yield one, other


def counts(pair: Pair) -> tuple[int, int]:
    return len(pair[0].shared.connections), len(pair[1].shared.connections)


async def known(pair: Pair, one: int, other: int) -> None:
    """Returns once both have been told these counts."""
    first, second = (each.listener._balance for each in pair)
    assert first is not None
    assert second is not None
    await until(lambda: first._known.get(1) == other and second._known.get(0) == one)


async def test_connections_of_one_port_are_spread_and_answer(pair: Pair) -> None:
    await known(pair, 0, 0)
    peers = []
    for number in range(8):
        peers.append(await pair[0].peer())
        await until(lambda: sum(counts(pair)) == number + 1)  # noqa: B023
        await known(pair, *counts(pair))
    assert counts(pair) == (4, 4)
    for peer in peers:
        stream = peer.begin()
        peer.say(stream, b"hello")
        assert (await peer.answer(stream))[1] == 0


async def test_after_connections_ended_new_ones_fill_up(pair: Pair) -> None:
    await known(pair, 0, 0)
    ours = []
    for number in range(4):
        ours.append(await pair[0].socket())
        await until(lambda: sum(counts(pair)) == number + 1)  # noqa: B023
        await known(pair, *counts(pair))
    for _, writer in ours[::2]:  # the two connections of the first worker
        writer.close()
    await known(pair, 0, 2)
    for number in range(2):
        await pair[1].socket()
        await until(lambda: sum(counts(pair)) == number + 3)  # noqa: B023
        await known(pair, *counts(pair))
    assert counts(pair) == (2, 2)


async def test_a_worker_that_has_ended_gets_no_connection(pair: Pair) -> None:
    await known(pair, 0, 0)
    await pair[1].listener.stop()
    for _ in range(4):
        peer = await pair[0].peer()
        stream = peer.begin()
        peer.say(stream, b"hello")
        assert (await peer.answer(stream))[1] == 0
    assert counts(pair) == (4, 0)
