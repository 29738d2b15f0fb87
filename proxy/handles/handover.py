"""Handles between the workers of one proxy: a client that comes to another one finds its own.

Each worker listens on a Unix socket in a folder that no other user can open, and dials those of the
others. A worker announces for which clients it keeps handles, so that a worker that has no handle
of a message knows whether to ask. A frame is its length in 4 bytes and a message in msgpack.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from struct import Struct

import msgspec

from ..http2.balance import Worker
from ..messages.status import StatusError
from .keeper import Keeper, Kept
from .receipt import Receipt, read

log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 64 << 20
HANDED_MAX = 50_000  # handles in one answer
TAKE_SECONDS = 1.0  # for the answer of another worker
DIAL_SECONDS = 0.2  # between attempts to reach another worker
FORGET_SECONDS = 5.0  # between checks for clients without handles
_LENGTH = Struct(">I")

Place = tuple[str, int, int]


class Hello(msgspec.Struct, tag=True, array_like=True):
    """The first message: the number of the speaker."""

    number: int


class Keeps(msgspec.Struct, tag=True, array_like=True):
    """The speaker keeps handles of these clients."""

    client_ids: list[str]


class KeepsNone(msgspec.Struct, tag=True, array_like=True):
    """The speaker keeps no handles of these clients any more."""

    client_ids: list[str]


class Take(msgspec.Struct, tag=True, array_like=True):
    """Hand over a client's handles: all, or the one of this group, message id and place."""

    request: int
    client_id: str
    group: str = ""
    message_id: str = ""
    place: Place | None = None


class Handed(msgspec.Struct, array_like=True):
    """One handle; times in ms."""

    group: str
    topic: str
    message_id: str
    handle: str
    first_pop_ms: int
    attempt: int
    renews: bool
    times: int


class Taken(msgspec.Struct, tag=True, array_like=True):
    """The answer to Take."""

    request: int
    handles: list[Handed]


Message = Hello | Keeps | KeepsNone | Take | Taken
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Handover:
    """The end of this worker. Make and start it inside a running loop."""

    def __init__(self, worker: Worker, keeper: Keeper) -> None:
        self._worker = worker
        self._keeper = keeper
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: dict[int, asyncio.StreamWriter] = {}  # dialled, by the number of the other
        self._kept_at: dict[int, set[str]] = {}  # clients, by the number of the other
        self._announced: set[str] = set()
        self._waiting: dict[int, asyncio.Future[list[Handed]]] = {}
        self._requests = 0
        self.handed = 0  # handles that others took

    async def start(self) -> None:
        """Listen, and dial the others."""
        path = self._path(self._worker.number)
        path.unlink(missing_ok=True)  # of a worker that died
        self._server = await asyncio.start_unix_server(self._serve, path)
        self._keeper.others = self
        for number in range(self._worker.count):
            if number != self._worker.number:
                self._spawn(self._dial(number))
        self._spawn(self._forget())

    async def stop(self) -> None:
        """Close all."""
        self._keeper.others = None
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path(self._worker.number).unlink(missing_ok=True)

    # --- for the keeper -------------------------------------------------------------------------

    def keeps(self, client_id: str) -> None:
        """Announce that this worker keeps a handle of this client."""
        if client_id not in self._announced:
            self._announced.add(client_id)
            self._tell(Keeps([client_id]))

    async def take(
        self, client_id: str, group: str = "", message_id: str = "", place: Place | None = None
    ) -> list[Kept]:
        """Take over the handles of a client, or of one message, from other workers."""
        answers = []
        for number, client_ids in self._kept_at.items():
            link = self._links.get(number)
            if client_id in client_ids and link is not None:
                self._requests += 1
                answer = asyncio.get_running_loop().create_future()
                self._waiting[self._requests] = answer
                answers.append((self._requests, answer))
                _write(link, Take(self._requests, client_id, group, message_id, place))
        found: list[Kept] = []
        for request, answer in answers:
            try:
                async with asyncio.timeout(TAKE_SECONDS):
                    found += [_kept(client_id, each) for each in await answer]
            except (TimeoutError, StatusError) as wrong:
                log.warning("another worker did not hand over handles: %s", wrong)
            finally:
                del self._waiting[request]
        return found

    # --- inside ---------------------------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self._worker.folder / f"{number}.sock"

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, message: Message) -> None:
        for link in self._links.values():
            _write(link, message)

    async def _dial(self, number: int) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path(number))
            except OSError:  # it isn't there yet, or has died
                await asyncio.sleep(DIAL_SECONDS)
                continue
            try:
                _write(writer, Hello(self._worker.number))
                self._links[number] = writer
                _write(writer, Keeps(list(self._announced)))
                while (message := await _read(reader)) is not None:
                    if isinstance(message, Taken):
                        answer = self._waiting.get(message.request)
                        if answer is not None and not answer.done():
                            answer.set_result(message.handles)
            finally:
                self._links.pop(number, None)
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = -1
        try:
            while (message := await _read(reader)) is not None:
                if isinstance(message, Hello):
                    number = message.number
                    self._kept_at[number] = set()
                elif isinstance(message, Keeps):
                    self._kept_at[number].update(message.client_ids)
                elif isinstance(message, KeepsNone):
                    self._kept_at[number].difference_update(message.client_ids)
                elif isinstance(message, Take):
                    _write(writer, Taken(message.request, await self._hand_over(message)))
        except (OSError, KeyError, asyncio.CancelledError) as wrong:
            log.info("the link of worker %d ends: %r", number, wrong)
        finally:
            self._kept_at.pop(number, None)
            self._tasks.discard(task)
            writer.close()

    async def _hand_over(self, wanted: Take) -> list[Handed]:
        if wanted.place is None:
            found = await self._keeper.give_all(wanted.client_id, HANDED_MAX)
        else:
            key = (wanted.client_id, wanted.group, wanted.message_id, *wanted.place)
            found = await self._keeper.give_one(key)
        self.handed += len(found)
        return [
            Handed(
                each.group,
                each.topic,
                each.message_id,
                each.receipt.full_text,
                each.first_pop_ms,
                each.attempt,
                each.renews,
                each.times,
            )
            for each in found
        ]

    async def _forget(self) -> None:
        """Tell the others of clients without handles; not at once, as messages come and go."""
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            gone = [each for each in self._announced if not self._keeper.has_handles(each)]
            if gone:
                self._announced.difference_update(gone)
                self._tell(KeepsNone(gone))


def _kept(client_id: str, handed: Handed) -> Kept:
    receipt: Receipt = read(handed.handle)
    return Kept(
        client_id,
        handed.group,
        handed.topic,
        handed.message_id,
        receipt,
        handed.first_pop_ms,
        handed.attempt,
        handed.renews,
        handed.times,
    )


def _write(writer: asyncio.StreamWriter, message: Message) -> None:
    if not writer.is_closing():
        data = _encode(message)
        writer.write(_LENGTH.pack(len(data)) + data)


async def _read(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None at the end, or after bytes that are no message."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if size > FRAME_BYTES_MAX:
            log.error(
                "a frame of another worker has %d bytes, the limit is %d", size, FRAME_BYTES_MAX
            )
            return None
        try:
            found: Message = _decode(await reader.readexactly(size))
        except msgspec.MsgspecError as wrong:
            log.error("a frame of another worker can't be read: %s", wrong)
            return None
        return found
    return None
