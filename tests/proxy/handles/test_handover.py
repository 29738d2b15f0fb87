"""Handles between workers: a client that comes to another one finds its own."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aerobee.proxy.handles import handover
from aerobee.proxy.handles.handover import Handover
from aerobee.proxy.handles.keeper import Keeper
from aerobee.proxy.handles.receipt import read
from aerobee.proxy.http2.balance import Worker
from aerobee.proxy.messages.status import Code, StatusError
from aerobee.proxy.settings.config import ProxyConfig

from ...waiting import LONG, until
from .test_keeper import FIRST, Brokers


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as those of sockets must be."""
    found = Path(tempfile.mkdtemp())
    yield found
    shutil.rmtree(found)


class Pair:
    """Two workers before one broker."""

    def __init__(self, folder: Path) -> None:
        brokers: Any = Brokers()
        self.brokers = brokers
        self.keepers = [Keeper(brokers, brokers, brokers, ProxyConfig()) for _ in range(2)]
        self.links = [
            Handover(Worker(folder, number, 2), keeper)
            for number, keeper in enumerate(self.keepers)
        ]

    def keep(self, client_id: str = "c", message_id: str = "M") -> None:
        self.keepers[0].keep(client_id, "G", "T", message_id, read(FIRST), attempt=1)

    async def until_told(self, client_id: str, known: bool = True) -> None:
        """Wait until the second worker knows whether the first keeps handles of a client."""
        link = self.links[1]
        await until(
            lambda: (client_id in link._kept_at.get(0, ())) == known,
            lambda: f"{client_id} of {link._kept_at}",
        )


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    found = Pair(folder)
    for link in found.links:
        await link.start()
    await until(lambda: all(link._links for link in found.links), "the workers are not linked")
    try:
        yield found
    finally:
        for link in found.links:
            await link.stop()


async def test_an_ack_at_another_worker_is_made_with_the_newest_handle(folder: Path) -> None:
    async with pair(folder) as workers:
        one, two = workers.keepers
        workers.keep()
        workers.brokers.ms += 55_000
        await one.renew_due()
        assert one.renewals == 1
        await workers.until_told("c")
        await two.ack("c", "G", "T", "M", read(FIRST))
        assert (len(one), len(two)) == (0, 0)
        (acked,) = workers.brokers.acked
        assert acked != read(FIRST).text  # the renewed one


async def test_a_failed_ack_leaves_the_handle_where_the_client_is(folder: Path) -> None:
    async with pair(folder) as workers:
        one, two = workers.keepers
        workers.keep()
        await workers.until_told("c")
        workers.brokers.error = StatusError(Code.INTERNAL_ERROR, "no")
        with pytest.raises(StatusError):
            await two.ack("c", "G", "T", "M", read(FIRST))
        workers.brokers.error = None
        assert (len(one), len(two)) == (0, 1)
        workers.brokers.ms += 55_000
        await two.renew_due()
        assert two.renewals == 1


async def test_a_client_that_comes_brings_all_its_handles_and_no_other_s(folder: Path) -> None:
    async with pair(folder) as workers:
        one, two = workers.keepers
        for number in range(5):
            workers.keep(message_id=f"M{number}")
        workers.keep("other")
        await workers.until_told("other")
        await two.fetch("c")
        assert (len(one), len(two)) == (1, 5)
        assert workers.links[0].handed == 5
        await one.release("c")  # as after its time of grace: nothing is given back
        assert workers.brokers.changes == []


async def test_a_message_that_may_not_have_come_is_given_back_wherever_it_is_kept(
    folder: Path,
) -> None:
    async with pair(folder) as workers:
        one, two = workers.keepers
        workers.keep()
        await workers.until_told("c")
        await two.fetch("c")
        await until(lambda: "c" in workers.links[0]._kept_at.get(1, ()), "one was not told")
        one.release_soon("c", "G", "M", read(FIRST))
        await one.stop()
        assert (len(one), len(two)) == (0, 0)
        assert workers.brokers.changes == [ProxyConfig().invisible_time_mills_when_clear]


async def test_clients_without_handles_are_not_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "FORGET_SECONDS", 0.01)
    async with pair(folder) as workers:
        one, _ = workers.keepers
        workers.keep()
        await workers.until_told("c")
        await one.ack("c", "G", "T", "M", read(FIRST))
        await workers.until_told("c", known=False)
        assert await workers.links[1].take("c") == []


async def test_a_worker_that_died_is_not_waited_for(folder: Path) -> None:
    async with pair(folder) as workers:
        workers.keep()
        await workers.until_told("c")
        await workers.links[0].stop()
        await workers.until_told("c", known=False)
        await workers.keepers[1].ack("c", "G", "T", "M", read(FIRST))
        assert workers.brokers.acked == [read(FIRST).text]
        again = Handover(Worker(folder, 0, 2), workers.keepers[0])
        workers.links[0] = again
        await again.start()
        workers.keep("later")
        await workers.until_told("later")


async def test_bytes_that_are_no_message_end_only_their_link(folder: Path) -> None:
    async with pair(folder) as workers:
        for data in (b"\0\0\0\1x", b"\xff\xff\xff\xff", b"\0\0\0\3\x92\xa5"):
            reader, writer = await asyncio.open_unix_connection(folder / "0.sock")
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(LONG):
                assert await reader.read() == b""
            writer.close()
        workers.keep()
        await workers.until_told("c")
