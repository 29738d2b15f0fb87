"""Handlers of every kind, and raw clients of a server over real sockets."""

import asyncio

from aerobee.protocol import codes
from aerobee.protocol.aio.connection import (
    Connection,
    Row,
)
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command, Response
from aerobee.protocol.errors import Refusal
from aerobee.protocol.wire import Header

from ...waiting import LONG
from ...waiting import until as until

ECHO, REFUSE, BREAK, SLOW, LATER, HIDE, BIG = range(9001, 9008)
BIG_BYTES = 1 << 20
LOOP_ITERATIONS = 1_000  # a server that keeps reading takes 64 MiB in fewer


class Name(Header):
    name: str


class Desk:
    """Handlers of every kind."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.parked: list[tuple[Command, Connection]] = []
        self.gate = asyncio.Event()

    def rows(self) -> dict[int, Row]:
        return table(
            [
                Row(ECHO, Name, self.echo),
                Row(REFUSE, None, self.refuse),
                Row(BREAK, None, self.break_),
                Row(SLOW, None, self.slow),
                Row(LATER, None, self.later),
                Row(BIG, Name, self.big),
            ]
        )

    def echo(self, header: Name, command: Command, connection: Connection) -> Response:
        self.seen.append(header.name)
        return Response(0, {"name": header.name}, body=command.body)

    def big(self, header: Name, command: Command, connection: Connection) -> Response:
        self.seen.append(header.name)
        return Response(0, body=b"x" * BIG_BYTES)

    def refuse(self, header: None, command: Command, connection: Connection) -> Response:
        raise Refusal(codes.TOPIC_NOT_EXIST, "no", {"why": "because"})

    def break_(self, header: None, command: Command, connection: Connection) -> Response:
        raise KeyError("a secret of ours")

    async def slow(self, header: None, command: Command, connection: Connection) -> Response:
        await self.gate.wait()
        return Response(0, remark="slow")

    def later(self, header: None, command: Command, connection: Connection) -> None:
        self.parked.append((command, connection))


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"  # type: ignore[attr-defined]


async def raw(server: Server, data: bytes) -> list[Command]:
    """Sends bytes, closes our half, and reads commands until the server closes too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    writer.write(data)
    writer.write_eof()
    commands = FrameDecoder().feed(await reader.read())
    writer.close()
    await writer.wait_closed()
    return commands


def big_requests(count: int, name: str = "big") -> bytes:
    return b"".join(encode_request(BIG, number, {"name": name}) for number in range(count))


async def read_responses(reader: asyncio.StreamReader, count: int) -> list[Command]:
    decoder, found = FrameDecoder(), []  # type: tuple[FrameDecoder, list[Command]]
    async with asyncio.timeout(LONG):
        while len(found) < count:
            found += decoder.feed(await reader.read(1 << 20))
    return found
