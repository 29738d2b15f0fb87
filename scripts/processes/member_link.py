"""A member's side of the pipes to its supervisor: the topics of a group are on every member.

Lines to the supervisor, after the ready line: `{"topic": CONFIG}` for each topic that is created
here, `{"deleted": NAME}` for each that is deleted. Lines from it: the first for a topic of another
member, which is created here where it is missing; the second for a topic that this member is to
delete, since it missed its deletion; and `{"tell": true}`, after which this member names all of its
topics. The end of the input is the order to stop.
"""

import asyncio
import json
import logging
import os
import signal
import sys

from ...broker.admin.topics import system_topics
from ...broker.server import Broker
from ...protocol.bodies.topic import TopicConfig
from ...protocol.errors import Refusal
from ...protocol.names import is_system_topic
from ...store.base.errors import StoreError

log = logging.getLogger(__name__)

TOPIC, DELETED, TELL = "topic", "deleted", "tell"
OWN_PREFIX = "%"  # retry topics and dead letters: a broker makes them for the groups it serves
LINE_BYTES_MAX = 1 << 20


def topic_line(config: TopicConfig) -> str:
    """The line for a topic."""
    return json.dumps({TOPIC: json.loads(config.encode(standard=True))})


class MemberLink:
    """Joins a started broker to its supervisor, by standard input and output."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics = broker.topics
        self._system = system_topics(broker.config)
        self._is_slave = broker.config.is_slave  # whose topics are its master's
        self._out: asyncio.WriteTransport | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to read, and to tell from the next tick on."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(LINE_BYTES_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        # A copy, so that print() goes on writing to the pipe after the transport has closed.
        out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", 0)
        self._out, _ = await loop.connect_write_pipe(asyncio.Protocol, out)
        os.set_blocking(sys.stdout.fileno(), True)
        self._reading = asyncio.create_task(self._read(reader))
        # In the next tick, so after the ready line, which is the first on standard output.
        loop.call_soon(self._listen)

    async def stop(self) -> None:
        """Tell no more."""
        if self._reading is not None:
            self._reading.cancel()
        out, self._out = self._out, None  # the broker still makes topics until it stops
        if out is not None:
            out.close()

    def _listen(self) -> None:
        known = self._topics.on_change

        def changed(config: TopicConfig) -> None:
            known(config)
            self._tell(config)

        self._topics.on_change = changed
        self._topics.on_delete = self._tell_deleted

    def _tell(self, config: TopicConfig) -> None:
        name = config.topic_name or ""
        if self._is_shared(name) and name not in self._topics.static.table:
            self._write(topic_line(config))

    def _tell_deleted(self, name: str) -> None:
        if self._is_shared(name):
            self._write(json.dumps({DELETED: name}))

    def _is_shared(self, name: str) -> bool:
        is_own = name in self._system or is_system_topic(name) or name.startswith(OWN_PREFIX)
        return not is_own and not self._is_slave

    def _write(self, line: str) -> None:
        if self._out is not None and not self._out.is_closing():
            self._out.write(line.encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            order = json.loads(line)
            if TELL in order:
                for config in self._topics.all().values():
                    self._tell(config)
            elif DELETED in order:
                await self._broker.delete_missed(order[DELETED])
            elif TOPIC in order and not self._is_slave:
                self._create(TopicConfig.decode(json.dumps(order[TOPIC]).encode()))
        signal.raise_signal(signal.SIGTERM)

    def _create(self, config: TopicConfig) -> None:
        if self._topics.get(config.topic_name or "") is None:
            try:
                self._topics.put(config)
            except (Refusal, StoreError) as wrong:
                log.error("topic %s of another member is not created: %s", config.topic_name, wrong)
