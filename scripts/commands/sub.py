"""`aerobee sub`: the messages of a topic on standard output as they come.

Without a group it only reads: nothing is committed and no group is joined, so any number of
subscribers may run at once. With `--group` it consumes as a member of that group.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from ...client import Consumer, MessageQueue
from ...client.base.start_from import FIRST, LAST, StartFrom
from ...client.errors import AerobeeError, NoRouteError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.errors import Refusal
from ...protocol.message import properties as props
from ...protocol.message.record import Record, decode_all
from ...protocol.names import check_topic
from ..begin_at import add_from, start_of
from ..connecting import add_options, security
from ..numbers import whole
from ..output.command_error import CommandError
from ..output.message_object import body_of, object_of
from ..output.sanitize import json_line, sanitize_body

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2  # between polls of a queue that has nothing new
RETRY_SECONDS = 1.0  # after a broker could not be asked, or a topic isn't there yet
QUEUES_SECONDS = 30.0  # between searches for new queues and brokers
PULL_MESSAGES = 256
COUNT = whole("is not a number of messages")
WAITING_MAX = 64  # pulled batches that are not printed yet


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of `aerobee sub`."""
    parser.description = (
        "Show the messages of a topic: the body of each on a line, or with --json an object. "
        "Without --group nothing is committed and nobody else is disturbed."
    )
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add_from(parser, latest=True)
    add("--count", type=COUNT, metavar="N", help="end after N messages (or: -n N)")
    add("--json", action="store_true", help="one object a line, as `pub --json` takes it")
    add("--tags", default="*", metavar="EXPRESSION", help="only these: a, or a || b")
    add("--group", metavar="NAME", help="consume as a member of this group, and acknowledge")
    add_options(parser, _NamesrvOrCount)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print until the count is reached, or until Ctrl-C, which is the normal end."""
    try:
        asyncio.run(_print_messages(options))
    except KeyboardInterrupt:
        if options.count is not None:
            raise  # fewer messages than the count
    return 0


async def _print_messages(options: argparse.Namespace) -> None:
    try:
        check_topic(options.topic)  # else asyncio would wait for it
    except Refusal as wrong:
        raise CommandError(wrong.remark) from None
    beginning = start_of(options.start, latest=True)
    source = _read(options, beginning) if options.group is None else _consume(options, beginning)
    left = options.count
    on_terminal = sys.stdout.isatty()  # to a pipe or file bodies are written unchanged
    if left == 0:
        return
    async for record in source:
        line = json_line(object_of(record)).encode() if options.json else body_of(record)
        if on_terminal and not options.json:
            line = sanitize_body(line)
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        if left is not None:
            left -= 1
            if left == 0:
                await source.aclose()
                return


async def _consume(options: argparse.Namespace, start: StartFrom) -> AsyncGenerator[Record, None]:
    """Consume as a member; a message is acknowledged when the next one is requested."""
    async with Consumer(
        options.namesrv,
        group=options.group,
        topics={options.topic: options.tags},
        start={FIRST: "earliest", LAST: "latest"}.get(start.where, start.ms),
        security=security(options),
    ) as consumer:
        async for message in consumer:
            try:
                yield message.record
            finally:
                message.settle()


async def _read(options: argparse.Namespace, start: StartFrom) -> AsyncGenerator[Record, None]:
    """Every message, from queues that are read concurrently."""
    wanted = {tag.strip() for tag in options.tags.split("||")} - {"*", ""}
    async with Reader(options.namesrv, security=security(options)) as reader:
        watch = _Watch(reader, options.topic, start)
        watch.begin()
        try:
            while True:
                for record in await watch.next_batch():
                    if not wanted or record.properties.get(props.TAGS) in wanted:
                        yield record
        finally:
            await watch.end()


class _Watch:
    """A task per queue that pulls and passes on messages, or its error."""

    def __init__(self, reader: Reader, topic: str, start: StartFrom) -> None:
        self._reader = reader
        self._topic = topic
        self._start = start
        self._queues: set[MessageQueue] = set()
        self._away: set[str] = set()  # brokers that don't respond, reported once each time
        self._tasks: list[asyncio.Task[None]] = []
        self._found: asyncio.Queue[list[Record] | Exception] = asyncio.Queue(WAITING_MAX)

    def begin(self) -> None:
        """Find the topic's queues and read them."""
        self._do(self._find_queues())

    async def next_batch(self) -> list[Record]:
        """The next messages; raises the error of a task."""
        found = await self._found.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def end(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        async def tell() -> None:
            try:
                await work
            except Exception as wrong:
                await self._found.put(wrong)

        self._tasks.append(asyncio.create_task(tell()))

    async def _find_queues(self) -> None:
        """Search for new queues, or for the topic itself, at intervals."""
        first = True
        while True:
            try:
                queues = await self._reader.queues(self._topic)
            except AerobeeError as wrong:
                if not wrong.retriable or (first and not isinstance(wrong, NoRouteError)):
                    raise
                if first:
                    print(
                        f"topic {self._topic} does not exist yet; waiting for it", file=sys.stderr
                    )
                self._start = StartFrom(FIRST)  # a new topic is read from its start
                first = False
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for queue in queues:
                if queue not in self._queues:
                    self._queues.add(queue)
                    self._do(self._read(queue, self._start))
            self._start = StartFrom(FIRST)  # queues found later are new
            first = False
            await asyncio.sleep(QUEUES_SECONDS)

    async def _read(self, queue: MessageQueue, start: StartFrom) -> None:
        offset: int | None = None
        while True:
            try:
                if offset is None:
                    offset = await self._first_offset(queue, start)
                pulled = await self._reader.pull(queue, offset, PULL_MESSAGES)
            except AerobeeError as wrong:
                if not wrong.retriable:
                    raise
                if queue.broker_name not in self._away:
                    log.warning("%s; trying again until it answers", wrong)
                self._away.add(queue.broker_name)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._away.discard(queue.broker_name)
            offset = pulled.next_offset
            if pulled.body:
                await self._found.put(decode_all(pulled.body))
            elif pulled.code == codes.PULL_NOT_FOUND:
                await asyncio.sleep(POLL_SECONDS)

    async def _first_offset(self, queue: MessageQueue, start: StartFrom) -> int:
        if start.where == FIRST:
            return await self._reader.min_offset(queue)
        if start.where == LAST:
            return await self._reader.max_offset(queue)
        return await self._reader.offset_at(queue, start.ms)


class _NamesrvOrCount(argparse.Action):
    """-n as in all commands; a number alone is a count, since no address is one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string == "-n" and values.isdecimal():
            namespace.count = int(values)
        else:
            namespace.namesrv = values
