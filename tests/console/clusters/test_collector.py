"""The collector: how long visitors wait for its first sample."""

import asyncio

import pytest
from aerobee.console.clusters import collector
from aerobee.console.clusters.clusters import Clusters

ITERATIONS = 5  # of the loop, more than a time-out in the past needs


async def test_visitors_wait_for_the_first_sample_only_shortly_after_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "FIRST_SAMPLE_SECONDS", 0.05)
    taken: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, one: taken.append(one), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    clusters = Clusters({"main": f"127.0.0.1:{port}"})
    await clusters.start()
    try:
        watched = clusters.by_name["main"].collector
        await watched.first_sample()
        assert not watched.sampled.is_set()
        later = asyncio.create_task(watched.first_sample())
        for _ in range(ITERATIONS):
            await asyncio.sleep(0)
        assert later.done()
    finally:
        await clusters.stop()
        for one in taken:
            one.close()
        silent.close()
        await silent.wait_closed()
