"""Connections that say nothing, or not enough: closed after a time, and limited in number."""

import asyncio

import pytest
from aerobee.console.web import listener
from aerobee.console.web.listener import Listener
from aiohttp import web

from ...waiting import LONG


async def served(listening: Listener) -> tuple[web.AppRunner, int]:
    async def hello(request: web.Request) -> web.Response:
        listening.heard(request)
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    return runner, await listening.start(runner, "127.0.0.1", 0, None)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_connection_without_a_whole_request_is_closed(said: bytes) -> None:
    listening = Listener(first_s=0.05)
    runner, port = await served(listening)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(LONG):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    writer.close()
    await listening.stop()
    await runner.cleanup()


async def test_a_connection_with_a_request_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 2)
    listening = Listener(first_s=3_600)
    runner, port = await served(listening)
    kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    async with asyncio.timeout(LONG):
        for reader, writer in kept:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert not listening._silent
        # One more than the limit is closed at once.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
    for _, writer in kept:
        writer.close()
    await listening.stop()
    await runner.cleanup()
