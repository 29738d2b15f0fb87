"""Bits flipped, files truncated and files removed in a small store, one at a time.

The store opens, it delivers messages as they were sent, undamaged messages are readable, and
missing ones are reported. By default a bit is flipped of some bytes, every field of every kind of
file among them; in the tier soak `AEROBEE_LOSS_BITS` bits (8) of each byte.
"""

import json
import logging
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import pytest
from aerobee.protocol.message.record import HEAD_BYTES, decode_all, decode_record
from aerobee.store.base.errors import StoreError
from aerobee.store.files import json_file

from .ledger import Queue
from .power import Image, PowerDisk
from .workload import A0, A1, B0, OFFSETS, Run, on

BITS = int(os.environ.get("AEROBEE_LOSS_BITS", "8"))
RECORDS_STEP, BODY_STEP = 7, 32  # every 7th record of the log, every 32nd byte of a body
LOG, QUEUES, INDEX = "/s/commitlog/", "/s/consumequeue/", "/s/index/"
ENTRY_BYTES = 20
Key = tuple[Queue, int]
Places = Callable[..., Iterator[tuple[str, int]]]


@dataclass
class Sound:
    """A store at rest: its files and its messages."""

    image: Image
    bodies: dict[Key, bytes]
    places: dict[Key, tuple[int, int]]  # begin and end in the log
    synced_end: int
    table: dict[str, int]


@cache
def sound(*, is_clean: bool) -> Sound:
    """A store of several files of each kind, after a clean stop or a kill."""
    disk = PowerDisk()
    with on(disk):
        run = Run(disk, sync_flush=False)
        run.open()
        for number in range(12):
            run.send((A0, A1, B0)[number % 3], 20 + 150 * (number % 4))
        run.send_batch(A1)
        run.send(B0, 1_500)
        run.commit()
        run.send(A0, 900)
        run.commit()
        run.timers()
        synced_end = run.store.durable_end
        for number in range(4):
            run.send((A0, B0)[number % 2], 300)
        bodies, places = {}, {}
        for queue in (A0, A1, B0):
            for offset, (place, size, _) in enumerate(run.store.entries(*queue, 0, 100)):
                data = run.store.message_at(place)
                assert data is not None
                bodies[queue, offset] = decode_record(data).body
                places[queue, offset] = place, place + size
        if is_clean:
            run.store.close()
            synced_end = max(end for _, end in places.values())
        table = json.loads(disk.killed()[str(OFFSETS)] or b"")
        return Sound(disk.killed(), bodies, places, synced_end, table)


class Told(logging.Handler):
    """The reports of level warning or error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    log = logging.getLogger("aerobee.store")
    log.addHandler(handler)
    propagate, log.propagate = log.propagate, False
    yield handler
    log.propagate = propagate
    log.removeHandler(handler)


def served(
    image: Image, told: Told, moved: Collection[bytes] = ()
) -> tuple[dict[Key, bytes], dict[str, int]]:
    """The messages that a store with these files delivers, and its table of offsets. The bodies in
    `moved` may be found by other keys."""
    told.lines.clear()
    run = Run(PowerDisk(image), sync_flush=False, first=500)
    found: dict[Key, bytes] = {}
    with on(run.disk):
        run.store.open()
        for queue in (A0, A1, B0):
            offset = max(0, run.store.min_offset(*queue))
            while offset < run.store.max_offset(*queue):
                result = run.store.get(*queue, offset, 32, 1 << 20)
                for record in decode_all(b"".join(result.records)):
                    found[(record.topic, record.queue_id), record.queue_offset] = record.body
                assert result.next_offset > offset
                offset = result.next_offset
            run.store.offset_at(*queue, run.ms)
            run.store.earliest_store_ms(*queue)
        for number in range(1, 24):
            for topic in "AB":
                for data in run.store.query(topic, f"k{number:08d}", 0, 1 << 60):
                    record = decode_record(data)
                    assert record.body.startswith(b"%08d" % number) or record.body in moved
        table = json_file.load(OFFSETS, json.loads) or {}
        run.store.make_room()
        run.send(A0)  # the store takes another message
        run.store.close()
    return found, table


def problem(found: dict[Key, bytes], whole: Sound, hit: set[Key], told: Told) -> str | None:
    """The fault, given that only the messages in `hit` were damaged; None for no fault.

    The checksum of a record covers its body only. A message whose other fields were damaged may
    appear at another place, and be found by another key.
    """
    moved = {whole.bodies[key] for key in hit}
    wrong = {
        key for key, body in found.items() if whole.bodies.get(key) != body and body not in moved
    }
    if wrong:
        return f"delivered otherwise than sent: {sorted(wrong)[:3]}"
    missing = set(whole.bodies) - set(found)
    if missing - hit:
        return f"not hit, and yet not served: {sorted(missing - hit)[:3]}"
    if missing and not told.lines:
        return f"missing, and nothing is said of it: {sorted(missing)[:3]}"
    return None


def behind(whole: Sound, place: int) -> set[Key]:
    """The messages that end behind a place: damage to unsynced bytes there ends the log."""
    return {key for key, (_, end) in whole.places.items() if end > place}


def hit_by(whole: Sound, path: str, at: int, *, is_clean: bool) -> set[Key]:
    """The messages that a changed byte may cost."""
    if path.startswith(LOG):
        place = int(path[len(LOG) :]) + at
        if place >= whole.synced_end:
            return behind(whole, place)
        return {key for key, (begin, end) in whole.places.items() if begin <= place < end}
    if path.startswith(QUEUES):
        topic, queue_id, name = path[len(QUEUES) :].split("/")
        return {((topic, int(queue_id)), (int(name) + at) // ENTRY_BYTES)}
    return set()


def places_to_flip(whole: Sound, *, is_clean: bool) -> Iterator[tuple[str, int]]:
    """Every byte that is not a zero, and some that are.

    After a kill only the bytes that recovery treats differently than after a stop: the unsynced
    bytes, and a sample of the rest.
    """
    for path, data in sorted(whole.image.items()):
        base = int(path[len(LOG) :]) if path.startswith(LOG) else -(1 << 60)
        for at, byte in enumerate(data or b""):
            if (byte or at % 256 == 0) and (
                is_clean or base + at >= whole.synced_end or at % 8 == 0
            ):
                yield path, at


def chosen_places(whole: Sound, *, is_clean: bool) -> Iterator[tuple[str, int]]:
    """The places of all these bytes but most of the log's. Of the log every byte of the unsynced
    and of some more records, without most of their bodies; and some bytes of each body."""
    records = sorted((begin, end, key) for key, (begin, end) in whole.places.items())
    unsynced = [one for one in records if one[0] >= whole.synced_end]
    some = {*records[::RECORDS_STEP], records[-1], *unsynced}
    skipped: set[int] = set()
    for begin, end, key in records:
        body = range(begin + HEAD_BYTES, begin + HEAD_BYTES + len(whole.bodies[key]))
        every = body if (begin, end, key) in some else range(begin, end)
        skipped |= set(every) - set(body[::BODY_STEP])
    for path, at in places_to_flip(whole, is_clean=is_clean):
        if not path.startswith(LOG) or int(path[len(LOG) :]) + at not in skipped:
            yield path, at


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("places", "bits"),
    [
        pytest.param(chosen_places, 1, id="chosen"),
        pytest.param(places_to_flip, BITS, id="all", marks=pytest.mark.soak),
    ],
)
def test_a_flipped_bit_costs_at_most_the_messages_it_hit(
    places: Places, bits: int, is_clean: bool, told: Told
) -> None:
    whole = sound(is_clean=is_clean)
    wrong = []
    count = 0
    for path, at in places(whole, is_clean=is_clean):
        for bit in range(bits):
            data = bytearray(whole.image[path] or b"")
            data[at] ^= 1 << (at * 5 + bit) % 8
            count += 1
            try:
                hit = hit_by(whole, path, at, is_clean=is_clean)
                moved = {whole.bodies[key] for key in hit}
                found, _ = served(whole.image | {path: bytes(data)}, told, moved)
                text = problem(found, whole, hit, told)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            if text is not None:
                wrong.append(f"{path} byte {at}: {text}")
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong[:20]])
    assert count > 300


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_entry_of_a_queue_with_a_negative_position_is_reported(
    is_clean: bool, told: Told
) -> None:
    whole = sound(is_clean=is_clean)
    wrong = []
    count = 0
    for path, data in whole.image.items():
        if not path.startswith(QUEUES) or data is None:
            continue
        for at in range(0, len(data), ENTRY_BYTES):
            hit = hit_by(whole, path, at, is_clean=is_clean)
            if not hit <= whole.bodies.keys():
                continue
            negative = bytes([data[at] | 0x80])
            found, _ = served(whole.image | {path: data[:at] + negative + data[at + 1 :]}, told)
            count += 1
            if (text := problem(found, whole, hit, told)) is not None:
                wrong.append(f"{path} byte {at}: {text}")
    assert not wrong, "\n".join(wrong)
    assert count >= len(whole.bodies)


def pieces(data: bytes) -> Iterator[bytes | None]:
    """A missing file, an empty one, one cut in the middle, and one without its last byte."""
    yield None
    yield b""
    if len(data) > 1:
        yield data[: len(data) // 2]
        yield data[:-1]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_missing_or_truncated_file_costs_at_most_its_own_messages(
    is_clean: bool, told: Told
) -> None:
    whole = sound(is_clean=is_clean)
    wrong = []
    for path, data in sorted(whole.image.items()):
        if data is None:
            continue
        for left in pieces(data):
            image = {name: text for name, text in whole.image.items() if name != path}
            if left is not None:
                image[path] = left
            hit: set[Key] = set()
            if path.startswith(LOG):
                begin = int(path[len(LOG) :])
                hit = {
                    key
                    for key, (at, end) in whole.places.items()
                    if begin + len(left or b"") < end and at < begin + len(data)
                }
                if begin + len(data) > whole.synced_end:
                    hit |= behind(whole, begin)
            elif path.startswith(QUEUES) and path.endswith("0" * 20) and not is_clean:
                # Old files are deleted from the front, too: only a clean stop records which.
                topic, queue_id, _ = path[len(QUEUES) :].split("/")
                hit = {((topic, int(queue_id)), n) for n in range(len(data) // ENTRY_BYTES)}
            try:
                found, table = served(image, told)
                text = problem(found, whole, hit, told)
                if text is None and path != str(OFFSETS) and table != whole.table:
                    text = f"offsets {table}"
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            if text is not None:
                wrong.append(f"{path} with {None if left is None else len(left)} bytes: {text}")
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:20]])


def test_offsets_are_read_from_the_bak_file_when_their_file_is_not_json(told: Told) -> None:
    whole = sound(is_clean=True)
    for text in (b"{", b"\xff\xfe", b"[1]", b'{"A@0": "x"'):
        with on(PowerDisk(whole.image | {str(OFFSETS): text})):
            loaded = json_file.load(OFFSETS, lambda data: dict(json.loads(data)))
        assert loaded == whole.table
    both: Image = {str(OFFSETS): b"{", f"{OFFSETS}.bak": b"}"}
    with on(PowerDisk(whole.image | both)), pytest.raises(StoreError, match="correct or remove"):
        json_file.load(OFFSETS, json.loads)


def test_a_store_of_random_bytes_is_refused_or_empty_and_no_other_error_escapes(told: Told) -> None:
    whole = sound(is_clean=False)
    for seed in range(40):
        noise = bytes((n * (seed * 2 + 3) + (n >> 3) * seed) & 0xFF for n in range(4096))
        image = {
            path: data if data is None or path.endswith("lock") else noise[: len(data)]
            for path, data in whole.image.items()
            if "/config/" not in path
        }
        found: dict[Key, bytes] = {}
        with suppress(StoreError):  # the only error that is allowed
            found, _ = served(image, told)
        assert not found
