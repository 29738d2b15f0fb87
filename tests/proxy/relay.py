"""A relay between two addresses that loses bytes and cuts connections."""

import asyncio
from typing import Literal

Direction = Literal["requests", "answers"]


class Relay:
    """Passes bytes on between two addresses, until it cuts."""

    def __init__(self, here: tuple[str, int], there: tuple[str, int]) -> None:
        self.address = here
        self.there = there
        self._server: asyncio.Server | None = None
        self._lost: set[Direction] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self.lost_bytes = asyncio.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, *self.address)

    def lose(self, direction: Direction) -> None:
        """From now on drop what goes in this direction; `cut` ends it."""
        self.lost_bytes.clear()
        self._lost.add(direction)

    def cut(self) -> None:
        """Reset all connections, at both ends; new ones work."""
        for end in self._ends:
            end.transport.abort()
        self._lost.clear()

    async def stop(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        self._ends.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.there)
            ends.add(far_writer)
            self._ends |= ends
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, far_writer, "requests"))
                group.create_task(self._pass(far_reader, writer, "answers"))
        except* OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._ends -= ends

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        while data := await reader.read(1 << 16):
            if direction in self._lost:
                self.lost_bytes.set()
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("this end has closed")
