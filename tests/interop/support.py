"""What several test modules of this folder share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from aerobee.client import Consumer
from aerobee.client.group.received import ReceivedMessage

from .. import waiting

until = partial(waiting.until, seconds=waiting.PROCESS, pause=0.05)  # other processes are slow

WORDS_FOR = (
    (r"\b\S+@\d+#\d+", "CLIENT"),
    (r"\b127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b[0-9A-F]{32,}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([.,]\d+)?", "TIME"),
    (r'(?<="subVersion":)\d+', "VERSION"),
    (r"(?<=physicOffset=)\d+", "PLACE"),
    (r"(?<=Consume TPS: )[\d.]+", "RATE"),
    (r"/\S+", "PATH"),
)


@asynccontextmanager
async def received(
    consumer: Consumer, settle: Callable[[ReceivedMessage], bool] = lambda _: True
) -> AsyncIterator[list[ReceivedMessage]]:
    """What a consumer receives while the block runs, each acknowledged if `settle` says so."""
    found: list[ReceivedMessage] = []

    async def receive() -> None:
        async for message in consumer:
            found.append(message)
            if settle(message):
                await message.ack()
            else:
                await message.nack()

    task = asyncio.create_task(receive())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def in_words(output: str) -> list[str]:
    """The lines of an output with all that differs from run to run replaced."""
    for pattern, word in WORDS_FOR:
        output = re.sub(pattern, word, output)
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    # Of an exception only its cause is the server's doing.
    # mqadmin's own consumer comes to be known at no certain time.
    noise = ("at org.", "at Admin", "... ", "TOOLS_CONSUMER", "%RETRY%TOOLS_CONSUMER")
    return [line for line in lines if not line.startswith(noise)]


def numbers_out(lines: list[str]) -> list[str]:
    """Lines with each number replaced by one word, and repeated words by one."""
    plain = [re.sub(r"-?\d+(\.\d+)?(E-?\d+)?", "N", line) for line in lines]
    return [re.sub(r"N( N)+", "N", line) for line in plain]
