"""A text of metrics: made once for scrapes at the same time, and kept after a slow one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from .exposition import CONTENT_TYPE

# The text is kept for this multiple of the time that writing it took, so that frequent scrapes
# take at most a tenth of the daemon's time.
KEPT_TIMES = 9
KEPT_SECONDS_MAX = 5.0


class MetricsText:
    """The response to a scrape. `write` gives the text in chunks."""

    def __init__(
        self, write: Callable[[], Awaitable[list[bytes]]], headers: Mapping[str, str]
    ) -> None:
        self._write = write
        self._headers = {**headers, "Content-Type": CONTENT_TYPE}
        self._text: asyncio.Task[list[bytes]] | None = None  # being written, or kept

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The text of now, or the kept one."""
        if self._text is None:
            self._text = asyncio.create_task(self._made())
        # A client that disconnects must not cancel the task that others wait for.
        chunks = await asyncio.shield(self._text)
        answer = web.StreamResponse(headers=self._headers)
        answer.content_length = sum(map(len, chunks))
        await answer.prepare(request)
        for chunk in chunks:
            await answer.write(chunk)
            await asyncio.sleep(0)  # lets the daemon serve its own requests
        await answer.write_eof()
        return answer

    def stop(self) -> None:
        """End the writing of a text."""
        if self._text is not None:
            self._text.cancel()

    async def _made(self) -> list[bytes]:
        began = time.monotonic()
        kept_s = 0.0
        try:
            chunks = await self._write()
            kept_s = min(KEPT_TIMES * (time.monotonic() - began), KEPT_SECONDS_MAX)
        finally:
            asyncio.get_running_loop().call_later(kept_s, self._forget)
        return chunks

    def _forget(self) -> None:
        self._text = None
