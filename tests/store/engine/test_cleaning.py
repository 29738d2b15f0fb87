"""Old files leave a store, and what it says about itself afterwards is right."""

import errno
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.record import decode_all
from aerobee.store.base import status
from aerobee.store.base.errors import WritesRefused
from aerobee.store.base.retention import Rules
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine import cleaning
from aerobee.store.engine.messages import Batch
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import disk

from ...clocks import Clock
from ..conftest import OpenStore, put

RULES = Rules(hours=frozenset())
SMALL = StoreSettings(
    segment_bytes=4096,
    queue_file_bytes=160,
    index_slots=8,
    index_entries=20,
    rules=RULES,
    queue_sync_ms=0,
)
BODY = bytes(800)  # four records a file of the log
BATCH = encode_batch([Entry(0, b"one", b"")])
GIB = 1 << 30


class Disk(disk.Disk):
    """A disk that is as full as a test says, and doesn't delete what it names."""

    def __init__(self) -> None:
        super().__init__()
        self.percent = 10
        self.capacity = 100 * GIB
        self.stuck: set[str] = set()
        self.retired: list[str] = []

    def room(self, path: Path) -> tuple[int, int]:
        used = self.capacity * self.percent // 100
        return used, self.capacity - used

    def unlink(self, path: Path) -> None:  # type: ignore[override]
        if path.name in self.stuck:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        self.retired.append(path.name)
        os.unlink(path)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(disk, "current", made)
    return made


@pytest.fixture
def store(full: Disk, open_store: OpenStore) -> MessageStore:
    return open_store(settings=SMALL)


def fill(store: MessageStore, files: int, topic: str = "T") -> None:
    """Whole files of the log: four messages of about a thousand bytes each, keys k0, k1, …"""
    first = store.max_offset(topic, 0)
    for number in range(first, first + 4 * files):
        _, offset, _ = put(store, topic, body=BODY, properties=b"KEYS\x01k%d\x02" % number)
        assert offset == number
    sync(store)


def sync(store: MessageStore) -> None:
    plan = store.sync_plan()
    if plan is not None:
        plan.run()
        store.synced(plan)


def age(store: MessageStore, clock: Clock, files: int, hours: float = 73) -> None:
    """The first files of the log were written so long ago, the others just now."""
    for number, path in enumerate(log_files(store)):
        when = clock.ms / 1000 - (hours * 3600 if number < files else 0)
        os.utime(path, (when, when))


def clean(store: MessageStore, **more: Any) -> int:
    """A whole round; how many steps it had work for a thread in."""
    count = 0
    for step in store.cleaner.clean(**more):
        if step.work is not None:
            step.work()
            count += 1
    return count


def log_files(store: MessageStore) -> list[Path]:
    return sorted((store.root / "commitlog").iterdir())


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def open_but_deleted(root: Path) -> set[str]:
    """Files of the store that this process still holds though their names are gone."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(str(root)) and target.endswith(" (deleted)"):
            found.add(target)
    return found


def test_expired_files_go_with_all_that_led_to_them(
    store: MessageStore, full: Disk, clock: Clock
) -> None:
    fill(store, 10)
    age(store, clock, 5)
    store.index_pending()
    indexes = files_below(store.root / "index")
    assert clean(store, by_hand=True) > 5
    assert [path.name for path in log_files(store)] == [f"{n * 4096:020d}" for n in range(5, 10)]
    assert store.log_start == 5 * 4096
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (20, 40)
    # Entries 0 to 15 were in two files of eight each; the third has 16 to 23.
    assert files_below(store.root / "consumequeue") == [f"{n * 160:020d}" for n in (2, 3, 4)]
    left = files_below(store.root / "index")
    assert left == indexes[-len(left) :]
    assert 0 < len(left) < len(indexes)
    assert open_but_deleted(store.root) == set()


def test_what_is_left_reads_as_before_and_what_is_gone_is_said_to_be(
    store: MessageStore, full: Disk, clock: Clock, open_store: OpenStore
) -> None:
    fill(store, 10)
    age(store, clock, 5)
    clean(store, by_hand=True)

    def check(store: MessageStore) -> None:
        early = store.get("T", 0, 7, 32, 1 << 20)
        assert (early.status, early.next_offset, early.min_offset) == (
            status.OFFSET_TOO_SMALL, 20, 20,
        )  # fmt: skip
        seen = []
        offset = 20
        while (found := store.get("T", 0, offset, 32, 1 << 20)).status == status.FOUND:
            seen += [record.queue_offset for data in found.records for record in decode_all(data)]
            offset = found.next_offset
        assert seen == list(range(20, store.max_offset("T", 0)))
        assert found.status == status.OFFSET_OVERFLOW_ONE
        assert store.message_at(0) is None
        assert store.query("T", "k3", 0, 1 << 62) == []
        assert len(store.query("T", "k23", 0, 1 << 62)) == 1
        assert store.earliest_store_ms("T", 0) == clock.ms
        assert store.offset_at("T", 0, 0) == 20
        assert store.entries("T", 0, 20, 1)[0][0] == store.log_start

    check(store)
    store.close()
    again = open_store(settings=SMALL)
    check(again)
    fill(again, 1)
    check(again)
    assert again.max_offset("T", 0) == 44


def test_files_go_in_the_hours_said_or_when_the_disk_is_fuller_than_75_percent(
    store: MessageStore, full: Disk, clock: Clock
) -> None:
    fill(store, 5)
    age(store, clock, 2)
    clean(store)
    assert store.log_start == 0
    full.percent = 75
    clean(store)
    assert store.log_start == 0
    full.percent = 76
    clean(store)
    assert store.log_start == 2 * 4096
    age(store, clock, 1)
    full.percent = 10
    store.state.settings = replace(SMALL, rules=Rules(hours=frozenset(range(24))))
    clean(store)
    assert store.log_start == 3 * 4096


def test_above_85_percent_young_files_go_but_only_as_many_as_it_takes(
    store: MessageStore, full: Disk
) -> None:
    fill(store, 8)
    full.capacity = 100 * 4096
    full.percent = 88
    clean(store)
    assert store.log_start == 3 * 4096


def test_without_force_young_files_stay(full: Disk, open_store: OpenStore) -> None:
    store = open_store(settings=replace(SMALL, rules=replace(RULES, may_force=False)))
    fill(store, 8)
    full.percent = 99
    clean(store)
    assert store.log_start == 0


def test_the_last_file_stays_and_so_do_those_that_are_not_on_the_disk(
    store: MessageStore, full: Disk, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 3)
    for number in range(8):
        put(store, body=BODY, properties=b"KEYS\x01k%d\x02" % number)
    store.write_staged()
    age(store, clock, 99)
    full.percent = 89
    clean(store)
    assert store.log_start == 2 * 4096
    sync(store)
    clean(store)
    assert store.log_start == 4 * 4096
    assert len(log_files(store)) == 1
    clean(store)
    assert "the log has no file left that could go" in caplog.text


def test_a_round_lets_a_limited_number_of_files_go(
    full: Disk, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store(settings=replace(SMALL, rules=replace(RULES, files_max=3)))
    fill(store, 9)
    age(store, clock, 9)
    for start in (3, 6, 8, 8):
        clean(store, by_hand=True)
        assert store.log_start == start * 4096


def test_above_90_percent_messages_are_refused_until_there_is_room_again(
    store: MessageStore, full: Disk
) -> None:
    fill(store, 1)
    full.percent = 90
    clean(store)
    assert store.pause_reason is None
    put(store)
    full.percent = 91
    clean(store)
    assert store.pause_reason is not None
    with pytest.raises(WritesRefused, match=r"91 % of the disk .* limit is 90 % .*free some space"):
        put(store)
    with pytest.raises(WritesRefused, match="disk is full"):
        store.put_batch(Batch(("T", 0), 0, 1, bytes(8), BATCH), b"")
    assert store.get("T", 0, 0, 32, 1 << 20).status == status.FOUND
    for percent in (90, 86):  # as in RocketMQ, it takes more room to begin again than to go on
        full.percent = percent
        clean(store)
        with pytest.raises(WritesRefused):
            put(store)
    full.percent = 85
    clean(store)
    assert store.pause_reason is None
    assert put(store)[1] == 5


def test_a_file_that_a_reader_holds_loses_its_name_at_once_and_its_room_later(
    store: MessageStore, full: Disk, clock: Clock
) -> None:
    fill(store, 4)
    age(store, clock, 2)
    found = store.get("T", 0, 0, 4, 1 << 20)
    held = found.records[0]
    before = bytes(held)
    del found
    clean(store, by_hand=True)
    assert len(log_files(store)) == 2
    assert len(open_but_deleted(store.root)) == 1
    assert bytes(held) == before
    assert decode_all(held)[0].queue_offset == 0
    assert clean(store) == 0  # it waits for the reader
    del held
    assert len(open_but_deleted(store.root)) == 1
    assert clean(store) == 1
    assert open_but_deleted(store.root) == set()


def test_a_reader_that_never_lets_go_is_reported_and_not_waited_for(
    store: MessageStore, full: Disk, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 4)
    age(store, clock, 1)
    held = store.get("T", 0, 0, 4, 1 << 20).records[0]
    clean(store, by_hand=True)
    clock.ms += RULES.held_ms
    assert clean(store) == 1
    assert "deleted 120 s ago" in caplog.text
    assert "0" * 20 in caplog.text
    assert decode_all(held)[0].queue_offset == 0
    assert clean(store) == 0


def test_a_held_file_is_not_made_up_for_with_others(store: MessageStore, full: Disk) -> None:
    fill(store, 8)
    full.capacity = 100 * 4096
    full.percent = 87
    held = [store.get("T", 0, offset, 4, 1 << 20).records[0] for offset in (0, 4)]
    clean(store)
    assert store.log_start == 2 * 4096
    clean(store)  # the disk is as full as before, since both are still held
    assert store.log_start == 2 * 4096
    held.clear()
    full.percent = 85
    clean(store)
    assert store.log_start == 2 * 4096


def test_a_file_that_can_not_be_deleted_stays_readable_and_is_tried_again_later(
    store: MessageStore, full: Disk, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 5)
    age(store, clock, 3)
    full.stuck.add(f"{4096:020d}")
    clean(store, by_hand=True)
    assert store.log_start == 4096
    assert "can't delete" in caplog.text
    assert "tried again in 120 s" in caplog.text
    assert store.get("T", 0, 4, 32, 1 << 20).status == status.FOUND
    full.stuck.clear()
    full.retired.clear()
    clean(store, by_hand=True)
    assert full.retired == []
    clock.ms += RULES.retry_ms
    clean(store, by_hand=True)
    assert store.log_start == 3 * 4096
    assert full.retired[:2] == [f"{4096:020d}", f"{8192:020d}"]


def test_a_queue_without_messages_left_keeps_its_numbers(
    store: MessageStore, full: Disk, clock: Clock, open_store: OpenStore
) -> None:
    fill(store, 5, "Old")
    fill(store, 2, "New")
    age(store, clock, 6)
    clean(store, by_hand=True)
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (20, 20)
    assert files_below(store.root / "consumequeue" / "Old") == [f"{320:020d}"]
    at_end = store.get("Old", 0, 20, 32, 1 << 20)
    assert (at_end.status, at_end.next_offset) == (status.OFFSET_OVERFLOW_ONE, 20)
    store.close()
    again = open_store(settings=SMALL)
    assert (again.min_offset("Old", 0), again.max_offset("Old", 0)) == (20, 20)
    assert put(again, "Old")[1] == 20
    again.write_staged()
    assert again.get("Old", 0, 20, 32, 1 << 20).count == 1


def test_the_first_round_after_a_start_finds_what_an_earlier_one_left(
    store: MessageStore, full: Disk, open_store: OpenStore
) -> None:
    fill(store, 10)
    store.close()
    for path in log_files(store)[:5]:
        path.unlink()  # as a crash between the log and the queues leaves it
    again = open_store(settings=SMALL)
    assert again.min_offset("T", 0) == 20
    assert len(files_below(again.root / "consumequeue")) == 5
    clean(again)
    assert files_below(again.root / "consumequeue") == [f"{n * 160:020d}" for n in (2, 3, 4)]
    assert clean(again) == 0


def test_a_topic_deleted_in_the_middle_of_a_round_ends_it_for_its_queues_only(
    store: MessageStore, full: Disk, clock: Clock
) -> None:
    for _ in range(5):
        fill(store, 1, "A")
        fill(store, 1, "B")
    age(store, clock, 9)
    steps = store.cleaner.clean_queues()
    for step in store.cleaner.clean(by_hand=True):
        if step.work is not None:
            step.work()
        if store.log_start == 9 * 4096 and "A" in store.topics():
            store.delete_topic("A")
            put(store, "A")  # made again: its file has the name of one that was to go
    assert next(steps, None) is None
    assert files_below(store.root / "consumequeue" / "A") == ["0" * 20]
    assert files_below(store.root / "consumequeue" / "B") == [f"{320:020d}"]
    assert (store.min_offset("A", 0), store.max_offset("A", 0)) == (0, 1)


@pytest.mark.parametrize("number", range(1, 30))
def test_a_crash_at_any_step_of_a_round_leaves_a_store_that_opens(
    number: int, store: MessageStore, full: Disk, clock: Clock, open_store: OpenStore,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.CRITICAL)
    fill(store, 8)
    age(store, clock, 5)
    for at, step in enumerate(store.cleaner.clean(by_hand=True), 1):
        if at == number:
            break
        if step.work is not None:
            step.work()
    crashed(store)
    again = open_store(settings=SMALL)
    start = again.log_start // 1024
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (start, 32)
    clean(again, by_hand=True)
    assert again.min_offset("T", 0) == again.log_start // 1024 == 20
    found = again.get("T", 0, 20, 32, 1 << 20)
    assert decode_all(found.records[0])[0].queue_offset == 20


def crashed(store: MessageStore) -> None:
    """Let go of everything without what a clean stop does."""
    store.abandon()


def test_a_queue_loses_files_only_when_a_later_one_is_on_the_disk_and_then_soon(
    store: MessageStore, full: Disk, clock: Clock
) -> None:
    fill(store, 4)
    for _ in range(12):
        put(store, body=BODY)
    needed = store.syncs.plan(clock.ms, with_queues=False, thorough=False)
    assert needed is not None
    needed.run()
    store.synced(needed)  # the log is on the disk, of the queue only what was before
    age(store, clock, 6)
    store.state.queues.simple["T", 0].synced = 0
    clean(store, by_hand=True)
    assert store.log_start == 6 * 4096
    assert len(files_below(store.root / "consumequeue")) == 4
    sync(store)
    clean(store)
    assert files_below(store.root / "consumequeue") == [f"{480:020d}"]


@pytest.mark.parametrize("number", range(1, 24))
def test_a_topic_may_be_deleted_at_any_step_of_a_round(
    number: int, store: MessageStore, full: Disk, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "QUEUES_PER_STEP", 1)
    for _ in range(5):
        fill(store, 1, "A")
        fill(store, 1, "B")
    age(store, clock, 9)
    at = 0
    for at, step in enumerate(store.cleaner.clean(by_hand=True), 1):
        if step.work is not None:
            step.work()
        if at == number:
            store.delete_topic("B")
    assert at > 12
    assert ("B" in store.topics()) is (number > at)
    assert (store.min_offset("A", 0), store.max_offset("A", 0)) == (20, 20)
    assert files_below(store.root / "consumequeue" / "A") == [f"{320:020d}"]
