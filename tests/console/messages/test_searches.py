"""Searches in a process of their own: what they find, how many run, and what happens when the
process dies."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from aerobee.client.base.security import Security
from aerobee.client.errors import ClientError
from aerobee.console.clusters.clusters import Clusters, Watched
from aerobee.console.messages.protobuf import ProtobufTypes
from aerobee.console.messages.search import Progress
from aerobee.console.messages.searches import SEARCHES_MAX, Searches, TooManySearches
from aerobee.protocol import codes
from aerobee.protocol.command import Command, Response
from aerobee.protocol.message.record import Record

from ...client.fakes import FakeCluster, pulled, record, until
from ...waiting import LONG
from .test_protobuf import descriptors

__all__ = ["descriptors"]  # a fixture
EVER_MS = 1 << 50
MESSAGES = 40


class Long(FakeCluster):
    """A topic with one queue whose messages are pulled one by one. Offsets are their bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"orders": 1}
        answers = self.broker.answers
        answers[codes.GET_MIN_OFFSET] = lambda *_: Response(fields={"offset": "0"})
        answers[codes.GET_MAX_OFFSET] = lambda *_: Response(fields={"offset": str(MESSAGES)})
        answers[codes.SEARCH_OFFSET_BY_TIMESTAMP] = answers[codes.GET_MAX_OFFSET]
        answers[codes.PULL_MESSAGE] = self._pull

    def body(self, offset: int) -> bytes:
        """The body of a message."""
        return b'{"n": %d}' % offset

    def _pull(self, command: Command, _: object) -> Response:
        offset = int(command.fields()["queueOffset"])
        return pulled([record(offset, self.body(offset), "orders", b"TAGS\x01t\x02")], offset + 1)


@pytest.fixture
async def cluster() -> AsyncIterator[Long]:
    cluster = Long()
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
def watched(cluster: Long) -> Watched:
    return Clusters({"main": cluster.address}).by_name["main"]


@pytest.fixture
async def searches() -> AsyncIterator[Searches]:
    searches = Searches()
    yield searches
    await searches.stop()
    assert searches.pid is None


def begun(searches: Searches, watched: Watched, where: str = "", **more: Any) -> Any:
    asked = {"sees_bodies": True, "cursor": "", "hits_max": 500, **more}
    return searches.search(watched, "orders", 0, EVER_MS, where, **asked)


async def result(steps: Any) -> tuple[list[int], Progress]:
    """The offsets of what a search finds, and its last progress."""
    found, last = [], Progress()
    async with aclosing(steps):
        async for one in steps:
            if isinstance(one, Record):
                found.append(one.queue_offset)
            else:
                last = one
    return found, last


async def test_a_search_in_the_process_scans_and_goes_on(
    searches: Searches, watched: Watched
) -> None:
    assert searches.pid is None
    found, last = await result(begun(searches, watched, "body.n > 30 AND tag = 't'"))
    assert found == list(range(31, MESSAGES))
    assert (last.scanned, last.found, last.left, last.why) == (MESSAGES, 9, 0, None)
    pid = searches.pid
    assert pid is not None
    assert pid != os.getpid()
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    # Where it was cut it goes on.
    first, last = await result(begun(searches, watched, hits_max=3))
    assert first == [0, 1, 2]
    assert str(last.why) == "3 messages were found, the limit of one page"
    assert last.cursor is not None
    second, _ = await result(begun(searches, watched, cursor=last.cursor))
    assert second == list(range(3, MESSAGES))
    assert searches.pid == pid  # one process for all
    # A body that is not to be seen is none.
    assert await result(begun(searches, watched, "body.n > 30", sees_bodies=False)) == (
        [],
        Progress(scanned=MESSAGES),
    )
    with pytest.raises(ClientError, match="begin the search again without it"):
        await result(begun(searches, watched, cursor="x"))


async def test_a_search_whose_process_dies_says_so_and_goes_on_in_a_new_one(
    searches: Searches, watched: Watched
) -> None:
    steps = begun(searches, watched)
    assert (await anext(steps)).queue_offset == 0
    pid = searches.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: searches.pid is None)
    more, last = await result(steps)
    # It is at most two batches ahead, so it could not have been done.
    assert len(more) < 5
    assert "the process of the searches has ended (signal 9)" in str(last.why)
    rest, last = await result(begun(searches, watched, cursor=last.cursor or ""))
    assert [0, *more, *rest] == list(range(MESSAGES))
    assert last.why is None
    assert searches.pid not in (pid, None)


async def test_searches_beyond_the_limit_are_refused(
    searches: Searches, watched: Watched, cluster: Long
) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(SEARCHES_MAX):
            steps = await stack.enter_async_context(aclosing(begun(searches, watched)))
            await anext(steps)
        with pytest.raises(TooManySearches, match=f"{SEARCHES_MAX} searches run, the limit is"):
            await anext(begun(searches, watched))
    # A search without a reader does not run on: each had asked for a few messages only.
    assert len(cluster.broker.requests[codes.PULL_MESSAGE]) <= SEARCHES_MAX * 5
    assert (await result(begun(searches, watched)))[0] == list(range(MESSAGES))


async def test_the_process_ends_when_no_search_runs(watched: Watched) -> None:
    searches = Searches(idle_s=0)
    await result(begun(searches, watched))
    await until(lambda: searches.pid is None)
    assert len((await result(begun(searches, watched)))[0]) == MESSAGES
    await searches.stop()


async def test_the_process_ends_with_the_console(watched: Watched, cluster: Long) -> None:
    searches = Searches()
    steps = begun(searches, watched)
    await anext(steps)
    pid = searches.pid
    assert pid is not None
    await searches.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    async with asyncio.timeout(LONG):
        _, last = await result(steps)
    assert "has ended" in str(last.why)


async def test_fields_of_protobuf_are_searched(
    watched: Watched, cluster: Long, descriptors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(offset: int) -> bytes:
        return b'{"total": 9}' if offset == 1 else bytes([8, offset + 1])

    monkeypatch.setattr(cluster, "body", body)
    searches = Searches(ProtobufTypes(descriptors, {"orders": "shop.Order"}))
    found, _ = await result(begun(searches, watched, "body.total BETWEEN 8 AND 10"))
    assert found == [1, 7, 8, 9]  # JSON among them is read as well
    await searches.stop()


async def test_a_client_of_another_process_only_is_refused(
    searches: Searches, watched: Watched
) -> None:
    context = Security(tls_insecure=True).context
    assert context is not None
    watched.security = Security(tls=context)
    with pytest.raises(ClientError, match="give tls_ca"):
        await anext(begun(searches, watched))
