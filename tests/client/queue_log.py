"""A queue of the fake broker as a log, and helpers for consumers of it."""

import asyncio

from aerobee.client import Consumer
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.pull import PullMessage

from ..waiting import LONG
from .fakes import FakeBroker, pulled


class Log:
    """A queue's messages: pulls get those from their offset on, or are parked until one comes."""

    def __init__(self, broker: FakeBroker, records: list[bytes]) -> None:
        self.records = records
        self.served: list[PullMessage] = []
        self._parked: list[tuple[Command, Connection]] = []
        broker.answers[codes.PULL_MESSAGE] = self.pull

    def pull(self, command: Command, connection: Connection) -> Response | None:
        """The answer to a pull."""
        header = command.header(PullMessage)
        self.served.append(header)
        if header.topic != "orders" or header.offset >= len(self.records):
            self._parked.append((command, connection))
            return None
        return pulled(self.records[header.offset :], len(self.records))

    def append(self, stored: bytes) -> None:
        """One more message, for parked pulls."""
        self.records.append(stored)
        parked, self._parked = self._parked, []
        for command, connection in parked:
            reply = self.pull(command, connection)
            self.served.pop()
            if reply is not None:
                connection.respond(command, reply)


def committed(broker: FakeBroker) -> dict[str, int]:
    """The last offset that was reported, by topic."""
    headers = [
        command.header(UpdateConsumerOffset)
        for command in broker.requests[codes.UPDATE_CONSUMER_OFFSET]
    ]
    return {header.topic: header.commit_offset for header in headers}


async def take(consumer: Consumer, count: int) -> list[bytes]:
    """The bodies of the next messages, each acknowledged."""
    found: list[bytes] = []
    async with asyncio.timeout(LONG):
        while len(found) < count:
            message = await consumer.receive()
            assert message is not None
            async with message.process():
                found.append(message.body)
    return found
