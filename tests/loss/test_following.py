"""A slave's crashes: at every change of its disk, whatever survives, it resumes with the same log.

After a kill the slave has every whole message that it received; after a power cut it has the synced
ones. It never has a byte that differs from its master's. It receives what is missing again.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from aerobee.protocol.message.record import decode_all
from aerobee.store.base import status
from aerobee.store.engine.store import MessageStore
from aerobee.store.inspect.check import check

from .power import Cut, Image, PowerDisk
from .workload import A0, A1, B0, HOST, ROOT, SETTINGS, Run, on

SEGMENT = SETTINGS[False].segment_bytes
IMAGES = 10  # sets of survivors per crash
CHECKED = 100  # every 100 states `aerobee store check` runs, too
Chunk = tuple[int, bytes]


class Log(NamedTuple):
    """A master's log: its bytes from `start` on, the ends of its messages, the bodies by queue."""

    start: int
    data: bytes
    ends: list[int]
    bodies: dict[tuple[str, int], list[tuple[int, bytes]]]  # by queue: end in the log, body

    def chunks(self, place: int, seed: int, most: int = 900) -> Iterator[Chunk]:
        """The log as a master sends it, in chunks of any size within a file."""
        draw = Random(seed)
        end = self.start + len(self.data)
        while place < end:
            stop = min(end, place + draw.randrange(1, most), place - place % SEGMENT + SEGMENT)
            yield place, self.data[place - self.start : stop - self.start]
            place = stop

    def floor(self, place: int) -> int:
        """The end of the last whole message before this place, or of its file's blank end."""
        return max([end for end in self.ends if end <= place], default=self.start)


class Crash(NamedTuple):
    """A moment: what a power cut or a kill leaves, and the log ends received and synced by then."""

    cut: Cut
    killed: Image
    came: int
    synced: int


def made(start: int) -> Log:
    """A log of many files; the slave receives the files from `start` on."""
    disk = PowerDisk()
    with on(disk):
        run = Run(disk, sync_flush=False)
        run.open()
        puts = []
        for number in range(40):
            run.put((A0, B0, A1)[number % 3], size=(20, 700, 1_200)[number % 3])
            puts += run.staged
            run.end_tick()
        end = run.store.log_end
        data = b"".join(
            run.store.raw(place, SEGMENT)
            for place in range(start, end - end % SEGMENT + 1, SEGMENT)
        )
        run.store.close()
    puts = [one for one in puts if one.end > start]
    bodies: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for one in puts:
        bodies.setdefault(one.queue, []).append((one.end, one.body))
    return Log(start, data, [one.end for one in puts], bodies)


def opened() -> MessageStore:
    store = MessageStore(ROOT, SETTINGS[False], HOST, lambda: 1_700_000_000_000)
    store.open()
    store.follower.follow("a slave")
    return store


def crashes(log: Log) -> list[Crash]:
    """A slave follows, syncs now and then, loses its connection twice, and is stopped."""
    disk = PowerDisk()
    found: list[Crash] = []
    with on(disk):
        store = opened()
        came = synced = log.start

        def note() -> None:
            found.append(Crash(disk.cut(), disk.killed(), came, synced))

        disk.on_step = note
        for number, (place, data) in enumerate(log.chunks(log.start, seed=4)):
            if place != store.log_end and store.log_end:
                continue  # lost with the connection
            store.follower.append_raw(place, data)
            came = max(came, store.log_end)
            if number % 5 != 4:
                store.follower.derive_new()
            if number % 7 == 6:
                came = log.floor(came)
                store.follower.cut_torn()
                for again in log.chunks(store.log_end, seed=number):
                    store.follower.append_raw(*again)
                    came = max(came, store.log_end)
                    if again[0] + len(again[1]) >= place + len(data):
                        break
            if number % 4 == 3:
                plan = store.sync_plan()
                if plan is not None:
                    plan.run()
                    store.synced(plan)
                synced = log.floor(store.durable_end)
                store.index_pending()
                store.save_checkpoint()
        store.close()
        note()
    return found


def contents(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            offset = max(0, store.min_offset(topic, queue_id))
            while offset < store.max_offset(topic, queue_id):
                got = store.get(topic, queue_id, offset, 32, 1 << 20)
                assert got.status == status.FOUND
                for record in decode_all(b"".join(got.records)):
                    assert record.is_body_intact
                    assert record.queue_offset == offset
                    found.setdefault((topic, queue_id), []).append(record.body)
                    offset += 1
    return found


def judge(log: Log, image: Image, least: int, most: int) -> Image:
    """Open the store that a crash left, compare all of it, follow to the end, and compare again.

    Returns the files after a clean stop.
    """
    disk = PowerDisk(image)
    with on(disk):
        store = opened()
        end = store.log_end
        assert least <= max(end, log.start) <= most
        assert not end or log.floor(end) == end or end == log.start
        compare(log, store, max(end, log.start))
        for place, data in log.chunks(max(end, log.start), seed=end):
            store.follower.append_raw(place, data)
            store.follower.derive_new()
        compare(log, store, log.start + len(log.data))
        store.close()
    return disk.killed()


def is_clean(image: Image, folder: Path) -> bool:
    """True if `aerobee store check` reports no damage in these files."""
    for name, data in image.items():
        path = folder / name.removeprefix("/")
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return not check(folder / ROOT.name).is_damaged


def compare(log: Log, store: MessageStore, end: int) -> None:
    place = log.start
    while data := store.raw(place, end - place if end > place else 0):
        assert data == log.data[place - log.start : place - log.start + len(data)]
        place += len(data)
    assert place == end
    wanted = {
        queue: [body for at, body in bodies if at <= end] for queue, bodies in log.bodies.items()
    }
    assert contents(store) == {queue: bodies for queue, bodies in wanted.items() if bodies}


@pytest.mark.parametrize("start", [0, 2 * SEGMENT])
def test_no_crash_of_a_slave_loses_received_messages_or_invents_others(
    start: int, quiet: None, tmp_path: Path
) -> None:
    log = made(start)
    draw = Random(start)
    states = 0
    for crash in crashes(log):
        whole = log.floor(crash.came)
        judge(log, crash.killed, whole, crash.came)
        for image in crash.cut.images(IMAGES, draw):
            left = judge(log, image, crash.synced, crash.came)
            states += 1
            if states % CHECKED == 0:
                assert is_clean(left, tmp_path / str(states))
    assert states > 500
