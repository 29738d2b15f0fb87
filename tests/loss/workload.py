"""A store at work on a disk that forgets: the steps of a workload, and what must hold afterwards.

`Run` does with its store what a broker does: stage messages, write them at the end of the loop
iteration, respond, and sync between two iterations. It notes every step in a ledger. `recovered`
opens what a crash has left and reads everything. `judge` may also continue for a moment, since some
damage only shows then.
"""

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aerobee.protocol.message.record import decode_all
from aerobee.store.base import status
from aerobee.store.base.errors import Shortage, StoreError
from aerobee.store.base.retention import Rules
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Batch, Message
from aerobee.store.engine.store import MessageStore
from aerobee.store.engine.sync import SyncPlan
from aerobee.store.files import disk as disks
from aerobee.store.files import json_file

from .ledger import Ledger, Queue
from .power import Image, PowerDisk

ROOT = Path("/s")
OFFSETS = ROOT / "config" / "consumerOffset.json"
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
# Files so small that each kind rolls over within a few messages.
SMALL = StoreSettings(
    segment_bytes=4096,
    queue_file_bytes=80,
    index_slots=4,
    index_entries=8,
    max_message_bytes=3_500,
    rules=Rules(keep_ms=0),
)
SETTINGS = {False: SMALL, True: replace(SMALL, sync_flush=True)}
A0, A1, B0 = ("A", 0), ("A", 1), ("B", 0)
MINUTE_MS = 60_000


@contextmanager
def on(disk: disks.Disk) -> Iterator[None]:
    """Within the block stores use this disk."""
    before, disks.current = disks.current, disk
    try:
        yield
    finally:
        disks.current = before


class Put(NamedTuple):
    """A stored message: its queue offset, and the position in the log where it ends."""

    body: bytes
    queue: Queue
    offset: int
    end: int


@dataclass
class Point:
    """The facts about a moment that a test needs to judge the result of a crash then."""

    ledger: Ledger
    forgiven: frozenset[bytes]  # acknowledged, but a power cut may take it (ASYNC_FLUSH)


class Run:
    """One store, from its opening to its crash or end."""

    def __init__(
        self, disk: PowerDisk, *, sync_flush: bool, ledger: Ledger | None = None, first: int = 0
    ) -> None:
        self.disk = disk
        self.settings = SETTINGS[sync_flush]
        self.ledger = ledger or Ledger()
        self.ms = 1_700_000_000_000
        self.number = first
        self.staged: list[Put] = []  # in this loop iteration
        self.waiting: list[Put] = []  # without a response, because the disk does not have them
        self.unsafe: list[Put] = []  # acknowledged before the disk has them
        self.store = self._made()

    def _made(self) -> MessageStore:
        return MessageStore(ROOT, self.settings, HOST, lambda: self.ms)

    def point(self) -> Point:
        """The present moment."""
        return Point(self.ledger.copy(), frozenset(one.body for one in self.unsafe))

    # ---- the steps of a broker

    def open(self) -> None:
        self.store.open()
        self.unsafe = []  # opening the store syncs what it found
        self.store.make_room()

    def put(self, queue: Queue, size: int = 20, *, key: bool = True) -> None:
        """A send, up to the end of the loop iteration."""
        self.number += 1
        body = (b"%08d " % self.number).ljust(size, b"x")
        self.ledger.sent(body, queue)
        raw = b"KEYS\x01k%08d\x02" % self.number if key else b""
        _, offset, end = self.store.put(
            Message(queue, 0, 0, 1, HOST, body, raw, 0),
        )
        self.staged.append(Put(body, queue, offset, end))

    def end_tick(self) -> None:
        """Write the staged messages, then respond, or let the responses wait for the disk."""
        try:
            self.store.write_staged()
        except StoreError:
            self.staged = []  # the broker closes these connections and sends no response
            self.store.state.dropped = False
            raise
        if self.store.state.dropped:
            self.store.state.dropped = False
            self.staged = []
        if self.settings.sync_flush:
            self.waiting += self.staged
        else:
            for one in self.staged:
                self.ledger.acknowledged(one.body, one.offset)
            self.unsafe += self.staged
        self.staged = []

    def send(self, queue: Queue, size: int = 20) -> None:
        self.put(queue, size)
        self.end_tick()

    def send_two(self) -> None:
        """Two messages in one loop iteration."""
        self.put(A0)
        self.put(B0, 500)
        self.end_tick()

    def send_batch(self, queue: Queue) -> None:
        """Three messages in one request."""
        bodies = []
        batch = b""
        for _ in range(3):
            self.number += 1
            body = b"%08d batch" % self.number
            self.ledger.sent(body, queue)
            bodies.append(body)
            total = 4 + 4 + 4 + 4 + 4 + len(body) + 2
            batch += b"".join(n.to_bytes(4, "big") for n in (total, 0, 0, 0, len(body)))
            batch += body + b"\0\0"
        first, _, end = self.store.put_batch(Batch(queue, 0, 1, HOST, batch), b"p\x01q\x02")
        self.staged += [Put(body, queue, first + n, end) for n, body in enumerate(bodies)]
        self.end_tick()

    def sync(self, during: Callable[[], None] | None = None) -> None:
        """A round of the syncer; `during` runs while its thread waits for the disk."""
        self.ms += 2 * MINUTE_MS
        plan = self.store.sync_plan()
        if during is not None:
            during()
        if plan is not None:
            try:
                plan.run()
            except Shortage:
                self.store.sync_undone(plan)
                raise
            except OSError as wrong:
                self.on_failed_sync(wrong, plan)
                return
            self.store.synced(plan)
        self.released()

    def released(self) -> None:
        """Send the responses that waited for the disk."""
        durable = self.store.durable_end
        for one in self.waiting:
            if one.end <= durable:
                self.ledger.acknowledged(one.body, one.offset)
        self.waiting = [one for one in self.waiting if one.end > durable]
        self.unsafe = [one for one in self.unsafe if one.end > durable]

    def on_failed_sync(self, wrong: OSError, plan: SyncPlan) -> None:
        self.store.sync_failed(wrong)

    def fail_sync(self, part: str) -> None:
        """A sync of a file of this part fails once; then an operator restarts the broker."""
        failed: list[str] = []

        def fail(call: str, path: str) -> None:
            if call == "sync" and part in path and not failed and path[-1].isdigit():
                failed.append(path)
                raise OSError(errno.EIO, "Input/output error")

        self.disk.fail = fail
        self.sync()
        self.disk.fail = None
        if failed:
            self.kill()

    def kill(self) -> None:
        """kill -9, and a start."""
        self.ledger.crashed()
        self.staged, self.waiting = [], []
        self.disk.held.clear()
        self.store = self._made()
        self.open()
        self.note_recovery()

    def note_recovery(self) -> None:
        """Note everything that the store has after a crash."""
        queues = [(topic, n) for topic, ids in self.store.topics().items() for n in ids]
        for queue in queues:
            read_queue(self.store, self.ledger, queue)
        self.ledger.recovered(queues)
        table = json_file.load(OFFSETS, json.loads) or {}
        for queue in queues:
            # As the broker does: consumer offsets never lie beyond the end of a queue.
            offset = min(table.get(f"{queue[0]}@{queue[1]}", 0), self.store.max_offset(*queue))
            self.ledger.restored("g", queue, offset)

    def clean(self) -> None:
        """Delete old files."""
        with suppress(OSError):  # the next round does the rest
            for step in self.store.cleaner.clean(by_hand=True):
                if step.work is not None:
                    step.work()

    def read(self) -> None:
        """Deliver every readable message."""
        for topic, queue_ids in self.store.topics().items():
            for queue_id in queue_ids:
                read_queue(self.store, self.ledger, (topic, queue_id))

    def commit(self) -> None:
        """A consumer reads everything, and its offsets are written to their file."""
        self.read()
        table = {
            f"{topic}@{queue_id}": self.store.max_offset(topic, queue_id)
            for topic, queue_ids in self.store.topics().items()
            for queue_id in queue_ids
        }
        # As the broker does: the messages are synced before the offsets that refer to them.
        self.sync()
        json_file.save(OFFSETS, json.dumps(table))
        for name, offset in table.items():
            self.ledger.committed("g", _queue(name), offset)

    def delete(self) -> None:
        """Topic A is deleted; the client repeats the request once when it fails."""
        self.ledger.deleting("A")
        try:
            self._delete()
        except StoreError:
            self._delete()
        self.ledger.deleted("A")
        self.waiting = [one for one in self.waiting if one.queue[0] != "A"]
        self.unsafe = [one for one in self.unsafe if one.queue[0] != "A"]

    def _delete(self) -> None:
        self.store.delete_topic("A")
        table = json_file.load(OFFSETS, json.loads) or {}
        left = {name: offset for name, offset in table.items() if _queue(name)[0] != "A"}
        json_file.save(OFFSETS, json.dumps(left))

    def restart(self) -> None:
        """A clean stop, and a start."""
        self.store.close()
        for one in self.waiting:
            self.ledger.acknowledged(one.body, one.offset)
        self.waiting, self.unsafe = [], []
        self.store = self._made()
        self.open()

    def timers(self) -> None:
        """The periodic work of a broker."""
        self.store.index_pending()
        self.store.save_checkpoint()


STEPS: dict[str, Callable[[Run], None]] = {
    "send": lambda run: run.send(A0),
    "send long": lambda run: run.send(B0, 1_200),
    "send batch": lambda run: run.send_batch(A1),
    "two in a turn": lambda run: run.send_two(),
    "fill the file": lambda run: run.send(A0, 3_000),
    "sync": lambda run: run.sync(),
    "send while it syncs": lambda run: run.sync(lambda: run.send(A0)),
    "timers": lambda run: run.timers(),
    "commit": lambda run: run.commit(),
    "restart": lambda run: run.restart(),
    "delete": lambda run: run.delete(),
    "clean": lambda run: run.clean(),
    "kill": lambda run: run.kill(),
    "sync of the log fails": lambda run: run.fail_sync("commitlog"),
    "sync of a queue fails": lambda run: run.fail_sync("consumequeue"),
}


def _queue(name: str) -> Queue:
    topic, _, queue_id = name.rpartition("@")
    return topic, int(queue_id)


def read_queue(store: MessageStore, ledger: Ledger, queue: Queue) -> None:
    """Note all messages that a queue delivers."""
    offset = max(0, store.min_offset(*queue))
    first, end = offset, store.max_offset(*queue)
    while offset < end:
        found = store.get(*queue, offset, 32, 1 << 20)
        if found.status == status.FOUND:
            for record in decode_all(b"".join(found.records)):
                body = record.body if record.is_body_intact else b"damaged"
                ledger.delivered((record.topic, record.queue_id), record.queue_offset, body)
        if found.next_offset <= offset:
            break
        offset = found.next_offset
    ledger.read_all(queue, first, end)


def recovered(
    image: Image, point: Point, *, sync_flush: bool, power: bool, first: int = 900_000
) -> Run:
    """Open the files that a crash has left and note their messages."""
    ledger = point.ledger.copy()
    ledger.crashed(point.forgiven if power else ())
    run = Run(PowerDisk(image), sync_flush=sync_flush, ledger=ledger, first=first)
    with on(run.disk):
        run.store.open()
        run.note_recovery()
    return run


def judge(image: Image, point: Point, *, sync_flush: bool, power: bool, again: bool) -> list[str]:
    """The conditions that do not hold after this crash; `again`: also after a send and a kill."""
    run = recovered(image, point, sync_flush=sync_flush, power=power)
    if not again or run.ledger.faults():
        return run.ledger.faults()
    with on(run.disk):
        run.store.make_room()
        # Exactly one message: an old record may lie right behind it.
        run.send(A0)
        if sync_flush:
            run.sync()
    after = Point(run.ledger, frozenset())
    return recovered(run.disk.killed(), after, sync_flush=sync_flush, power=False).ledger.faults()
