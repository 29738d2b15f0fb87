"""A running console gives its own user a link, and nobody else."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from aerobee.console.access.link_socket import ConsoleLink, LinkSocket, ask

PORT = 70_000 + os.getpid()  # of no console: it only makes the name
GIVEN = ConsoleLink("http://127.0.0.1:8082/", "http://127.0.0.1:8082/login?link=word")


@pytest.fixture
async def served() -> AsyncIterator[LinkSocket]:
    served = LinkSocket(lambda: GIVEN)
    await served.start(PORT)
    yield served
    await served.stop()


async def test_its_user_gets_a_link(served: LinkSocket) -> None:
    assert await asyncio.to_thread(ask, PORT) == GIVEN


async def test_nobody_answers_after_its_end(served: LinkSocket) -> None:
    await served.stop()
    assert await asyncio.to_thread(ask, PORT) is None


async def test_another_user_gets_nothing(
    served: LinkSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    reader, writer = await asyncio.open_unix_connection(f"\0aerobee-console-{PORT}")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_the_link_of_another_user_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"\0aerobee-console-{PORT}")
        other.listen()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        asking = asyncio.create_task(asyncio.to_thread(ask, PORT))
        peer, _ = await asyncio.to_thread(other.accept)
        with peer, suppress(OSError):
            peer.sendall(json.dumps(GIVEN).encode())
        assert await asking is None


async def test_a_name_that_is_taken_leaves_the_console_without_a_socket(
    served: LinkSocket, caplog: pytest.LogCaptureFixture
) -> None:
    second = LinkSocket(lambda: ConsoleLink("", None))
    await second.start(PORT)
    await second.stop()
    assert "aerobee console --link can't find this console" in caplog.text
    assert await asyncio.to_thread(ask, PORT) == GIVEN
