"""Timers after crashes, power cuts, full disks, long downtime, and on stores that Java wrote.

The tests use no sockets: a real store in a folder, and a clock that the test moves. A copy of the
files stands for the state that a killed process leaves.
"""

import asyncio
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.acting.taking import TakenTimers
from aerobee.broker.runtime.stats import Stats
from aerobee.broker.runtime.throttle import FEW
from aerobee.broker.scheduled.delays import Delays
from aerobee.broker.scheduled.delivering import open_master_timers
from aerobee.broker.scheduled.delivery_policy import DeliveryPolicy
from aerobee.broker.scheduled.timer_parts import TimerParts
from aerobee.broker.scheduled.timers import Timers
from aerobee.broker.scheduled.wheel_intake import ENTRIES_PER_STEP, READS_PER_STEP
from aerobee.broker.settings.config import BrokerConfig
from aerobee.broker.settings.delay_levels import parse_levels
from aerobee.protocol.message import properties
from aerobee.protocol.message.record import decode_record
from aerobee.store.base.errors import DiskFull, StoreError
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import disk
from aerobee.store.files.segment import Segment
from aerobee.store.inspect.check import check
from aerobee.store.queues.consume_queue import ConsumeQueue
from aerobee.store.timer import timer_check
from aerobee.store.timer.timer_log import TimerLog

from ..parts import HOST

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
WHEEL_TOPIC = "rmq_sys_wheel_timer"
STORES = Path(__file__).parents[2] / "golden" / "stores"


class Rig:
    """An open store and its timers. `now_ms` is the clock."""

    def __init__(self, root: Path, now_ms: int = START_MS, **settings: Any) -> None:
        self.root = root
        self.now_ms = now_ms
        self.woken: list[tuple[str, int]] = []
        self.tells = False  # the timers of each send, as the send handler does
        base: dict[str, Any] = {
            "store_path_root_dir": str(root),
            "mapped_file_size_commit_log": 1 << 20,
            "mapped_file_size_timer_log": 4_096,
            "max_hash_slot_num": 100,
            "max_index_num": 400,
        }
        self.config = BrokerConfig(**(base | settings))
        self.store = MessageStore(root, self.config.store_settings(), HOST, self.clock)
        self.store.open()
        self.stats = Stats("c", self.clock)
        try:
            timers = open_master_timers(
                self.config, self.store, self.clock, self.woken.append, self.stats
            )
        except BaseException:
            self.store.close()
            raise
        assert timers is not None
        self.timers: Timers = timers
        self.delays = Delays(
            root / "config" / "delayOffset.json",
            self.store,
            parse_levels(self.config.message_delay_level),
            self.clock,
            self.woken.append,
            self.stats,
        )
        self.delivery_policy = DeliveryPolicy(self.config, self.delays, timers, self.clock)

    def clock(self) -> int:
        return self.now_ms

    def send(self, body: bytes, wait_ms: int, **pairs: str) -> None:
        """Send a message to be delivered after `wait_ms`."""
        names = {"TIMER_DELIVER_MS": str(self.now_ms + wait_ms), "UNIQ_KEY": body.decode()} | pairs
        place = self.delivery_policy.place(properties.encode(names).decode(), "T", 0)
        start, offset, end = self.put(place.topic, place.queue_id, body, place.text.encode())
        if self.tells:
            self.delivery_policy.on_timers_stored([offset, start, end - start, place.out_ms], ["T"])

    def put(self, topic: str, queue_id: int, body: bytes, raw: bytes) -> tuple[int, int, int]:
        placed = self.store.put(Message((topic, queue_id), 0, 0, self.now_ms, HOST, body, raw, 0))
        self.store.write_staged()
        return placed

    def work(self) -> None:
        while self.timers.step(self.now_ms):
            pass

    def at(self, now_ms: int) -> "Rig":
        self.now_ms = now_ms
        self.work()
        return self

    def sync(self) -> None:
        """Sync everything to disk, as the broker does each second."""
        state = self.timers.state
        for _ in range(2):
            plan = self.store.sync_plan()
            if plan is not None:
                plan.run()
                self.store.synced(plan)
            progress = state.unsynced()
            if progress is not None:
                state.sync()
                state.synced(progress)

    def came(self, topic: str = "T") -> list[tuple[bytes, int]]:
        """Body and store time of each message in its own topic."""
        found = []
        for place, _, _ in self.store.entries(topic, 0, 0, 1 << 20):
            data = self.store.message_at(place)
            assert data is not None
            record = decode_record(data)
            found.append((record.body, record.store_ms))
        return found

    def bodies(self, topic: str = "T") -> list[bytes]:
        return [body for body, _ in self.came(topic)]

    def close(self) -> None:
        self.sync()
        self.timers.state.close()
        self.store.close()


OpenRig = Callable[..., Rig]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[OpenRig]:
    """`rig(root=…, now_ms=…, settings…)`: an open rig, closed after the test."""
    opened: list[Rig] = []

    def opens(root: Path = tmp_path / "store", now_ms: int = START_MS, **settings: Any) -> Rig:
        opened.append(Rig(root, now_ms, **settings))
        return opened[-1]

    yield opens
    for one in opened:
        one.close()
        assert damage(one.root) == []


@pytest.fixture
def killed(tmp_path: Path, rig: OpenRig) -> Callable[..., Rig]:
    """`killed(rig)`: a rig on the files that kill -9 of a process with this store leaves."""
    number = iter(range(1_000))

    def kill(victim: Rig, *, lose: tuple[str, ...] = (), **settings: Any) -> Rig:
        folder = tmp_path / f"killed-{next(number)}"
        copy(victim.root, folder)
        assert damage(folder) == []
        for name in lose:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return rig(folder, victim.now_ms, **settings)

    return kill


def damage(root: Path) -> list[str]:
    """The findings of `aerobee store check` for a store."""
    return [found.line for found in check(root).findings if found.is_damage]


def copy(source: Path, target: Path) -> None:
    """Copy a folder; sparse files stay sparse."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)


def test_progress_that_is_noted_during_a_sync_is_part_of_the_next(rig: OpenRig) -> None:
    one = rig()
    state = one.timers.state
    progress = state.unsynced()
    assert progress is not None
    state.sync()
    one.send(b"meanwhile", 60_000)
    one.work()
    state.synced(progress)
    assert state.check.queue_offset == 0
    one.sync()
    assert state.check.queue_offset == 1


def test_progress_whose_sync_failed_is_part_of_the_next(
    rig: OpenRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rig()
    one.send(b"x", 60_000)
    one.work()

    def fails() -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(one.timers.state.log, "sync", fails)
        with pytest.raises(OSError, match="gone"):
            one.sync()
    one.sync()
    assert one.timers.state.check.queue_offset == 1


def test_a_restart_changes_nothing(rig: OpenRig) -> None:
    one = rig()
    for number, wait_ms in enumerate((1_000, 5_000, 5_000, 60_000)):
        one.send(b"%d" % number, wait_ms)
    one.at(START_MS + 2_000)
    one.close()
    two = rig(now_ms=START_MS + 4_000)
    two.work()
    assert two.bodies() == [b"0"]
    assert two.timers.state.waiting == 3
    two.at(START_MS + 5_000)
    two.close()
    three = rig(now_ms=START_MS + DAY_MS)
    three.work()
    assert three.bodies() == [b"0", b"1", b"2", b"3"]
    assert three.timers.state.waiting == 0


def test_a_stop_writes_the_progress_in_javas_check_point(rig: OpenRig) -> None:
    one = rig()
    one.send(b"a", 1_000)
    one.send(b"b", 9_000)
    one.at(START_MS + 3_500)
    one.close()
    check = timer_check.load(one.root / "config" / "timercheck")
    assert check is not None
    numbers = (check.read_ms, check.flushed, check.queue_offset, check.master_queue_offset)
    assert numbers == (START_MS + 3_000, 104, 2, 2)
    assert check.own is not None
    assert check.own.is_clean


@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("steps", range(12))
def test_a_kill_between_any_two_steps_loses_nothing_and_repeats_nothing(
    rig: OpenRig, killed: Callable[..., Rig], steps: int, tells: bool
) -> None:
    one = rig()
    one.tells = tells
    sent = [b"%d" % number for number in range(100)]
    for body in sent:
        one.send(body, 1_500)
    one.now_ms += 10_000
    for _ in range(steps):
        one.timers.step(one.now_ms)
    two = killed(one)
    two.work()
    assert two.bodies() == sent


def test_a_missing_wheel_and_timer_log_are_rebuilt(
    rig: OpenRig, killed: Callable[..., Rig]
) -> None:
    one = rig()
    for number in range(90):  # more than one file of the timer log
        one.send(b"%d" % number, 10_000 + number)
    one.work()
    for lose in (("timerwheel",), ("timerwheel", "timerlog", "config/timercheck")):
        two = killed(one, lose=lose)
        two.at(START_MS + 12_000)
        assert two.bodies() == one_by_one(90)


def test_units_written_after_the_last_check_point_are_not_written_twice(
    rig: OpenRig, killed: Callable[..., Rig], tmp_path: Path
) -> None:
    one = rig()
    one.send(b"0", 5_000)
    one.work()
    shutil.copy(one.root / "config" / "timercheck", tmp_path / "earlier")
    for number in range(1, 50):
        one.send(b"%d" % number, 5_000)
    one.work()
    shutil.copy(tmp_path / "earlier", one.root / "config" / "timercheck")
    two = killed(one)
    two.at(START_MS + 6_000)
    assert two.bodies() == one_by_one(50)


def test_a_delivery_lost_in_a_power_cut_is_repeated(
    rig: OpenRig, killed: Callable[..., Rig], tmp_path: Path
) -> None:
    one = rig()
    for number in range(5):
        one.send(b"%d" % number, 5_000)
    one.work()
    one.sync()
    copy(one.root, tmp_path / "synced")
    one.at(START_MS + 6_000)
    assert len(one.bodies()) == 5
    for name in ("timerwheel", "timerlog", "config"):  # these files happened to reach the disk
        path = tmp_path / "synced" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        copy(one.root / name, path)
    two = rig(tmp_path / "synced", START_MS + 6_000)
    two.work()
    assert two.bodies() == one_by_one(5)


@pytest.mark.parametrize("count", [5, 77, 78, 79])  # a file of the timer log has 78 units
def test_a_message_whose_place_in_the_wheel_is_lost_in_a_power_cut_is_placed_again(
    rig: OpenRig, tmp_path: Path, count: int
) -> None:
    one = rig()
    one.send(b"0", 5_000)
    one.work()
    one.sync()
    copy(one.root, tmp_path / "cut")
    for number in range(1, count):
        one.send(b"%d" % number, 5_000)
    one.work()
    for name in ("commitlog", "consumequeue", "config"):  # these files happened to reach the disk
        shutil.rmtree(tmp_path / "cut" / name)
        copy(one.root / name, tmp_path / "cut" / name)
    two = rig(tmp_path / "cut", START_MS)
    two.at(START_MS + 6_000)
    assert two.bodies() == one_by_one(count)


def test_a_kill_after_the_timer_log_went_on_in_a_new_file_repeats_nothing(
    rig: OpenRig, killed: Callable[..., Rig]
) -> None:
    one = rig()
    for number in range(78):  # fills a file
        one.send(b"%d" % number, 1_000)
    one.at(START_MS + 2_000)
    state = one.timers.state
    assert not state.log.has_room
    state.log.roll()
    state.note()
    two = killed(one)
    two.work()
    assert two.bodies() == one_by_one(78)


def test_the_check_point_does_not_pass_the_durable_end_of_the_log(rig: OpenRig) -> None:
    one = rig()
    one.send(b"a", 1_000)
    one.at(START_MS + 2_000)
    state = one.timers.state
    progress = state.unsynced()
    assert progress is not None
    state.sync()
    state.synced(progress)
    assert (state.check.read_ms, state.check.queue_offset) == (0, 0)
    assert state.unsynced() is None, "first the log"
    one.sync()
    assert (state.check.read_ms, state.check.queue_offset) == (START_MS + 2_000, 1)
    assert state.unsynced() is None, "nothing is new"


def test_messages_due_during_downtime_are_delivered_at_the_start(
    rig: OpenRig, killed: Callable[..., Rig]
) -> None:
    one = rig()
    for days in range(20):
        one.send(b"%d" % days, days * DAY_MS + 1_000)
    one.work()
    one.close()
    two = rig(now_ms=START_MS + 13 * DAY_MS)
    two.send(b"new", 2_000)
    two.work()
    assert two.bodies() == one_by_one(13)
    two.at(START_MS + 13 * DAY_MS + 2_000)
    assert two.bodies() == [*one_by_one(14), b"new"]
    three = killed(two)
    for _ in range(14):
        three.at(three.now_ms + DAY_MS // 2)
    assert three.bodies() == [*one_by_one(14), b"new", *one_by_one(20)[14:]]


def test_overdue_slots_of_the_previous_round_are_delivered_first(rig: OpenRig) -> None:
    one = rig()
    one.send(b"old", DAY_MS)
    one.work()
    one.close()
    # The new message belongs to the slot that still has the old one, two rounds later.
    later_ms = START_MS + 15 * DAY_MS - 3_600_000
    two = rig(now_ms=later_ms)
    two.send(b"new", 3_600_000)
    two.work()
    assert two.bodies() == [b"old"]
    two.at(later_ms + 3_599_999)
    assert two.bodies() == [b"old"]
    two.at(later_ms + 3_600_000)
    assert two.bodies() == [b"old", b"new"]


def test_a_message_beyond_the_wheel_rolls_and_counts_its_rolls(rig: OpenRig) -> None:
    one = rig()
    one.send(b"far", 7 * DAY_MS + 500)
    one.work()
    while not one.bodies():
        assert one.now_ms < START_MS + 8 * DAY_MS, "lost"
        one.at(one.now_ms + DAY_MS // 8)
    ((_, came_ms),) = one.came()
    assert 0 <= came_ms - (START_MS + 7 * DAY_MS + 500) <= DAY_MS // 8
    place, _, _ = one.store.entries("T", 0, 0, 1)[0]
    pairs = decode_record(one.store.message_at(place) or b"").properties
    assert pairs["TIMER_ROLL_TIMES"] == "3"
    assert one.store.max_offset(WHEEL_TOPIC, 0) == 4
    # Between two rolls the record is younger than fileReservedTime, three days.
    times = [one.store.store_ms_at(WHEEL_TOPIC, 0, offset) for offset in range(4)]
    assert max(b - a for a, b in zip(times, [*times[1:], came_ms], strict=True)) < 3 * DAY_MS


def test_a_message_due_after_the_retention_time_rolls_more_often(rig: OpenRig) -> None:
    one = rig(file_reserved_time=6)
    one.send(b"far", DAY_MS)
    one.work()
    while one.now_ms < START_MS + DAY_MS:
        one.at(one.now_ms + 600_000)
    count = one.store.max_offset(WHEEL_TOPIC, 0)
    times = [one.store.store_ms_at(WHEEL_TOPIC, 0, offset) for offset in range(count)]
    assert max(b - a for a, b in pairwise(times)) <= 4 * 3_600_000 + 600_000
    assert one.bodies() == [b"far"]


def test_after_a_clock_step_backwards_nothing_is_delivered_early_or_twice(rig: OpenRig) -> None:
    one = rig()
    one.send(b"a", 5_000)
    one.at(START_MS + 6_000)
    one.at(START_MS - 60_000)
    one.send(b"b", 1_500)
    one.at(START_MS - 60_000 + 1_499)
    assert one.bodies() == [b"a"]
    one.at(START_MS - 58_000)
    assert one.bodies() == [b"a", b"b"]
    one.at(START_MS + 10_000)
    assert one.bodies() == [b"a", b"b"]


def test_one_step_is_short_for_any_number_of_due_messages(rig: OpenRig) -> None:
    one = rig()
    for number in range(500):
        one.send(b"%d" % number, 1_000)
    one.now_ms += 5_000
    ends = []
    for _ in range(200):
        before = one.store.max_offset("T", 0), one.timers.state.queue_offset
        more = one.timers.step(one.now_ms)
        after = one.store.max_offset("T", 0), one.timers.state.queue_offset
        assert after[0] - before[0] <= FEW
        assert after[1] - before[1] <= ENTRIES_PER_STEP
        ends.append(after[0])
        if not more:
            break
    assert ends[-1] == 500


def test_a_step_takes_fewer_messages_from_the_log_than_from_sends(
    rig: OpenRig,
) -> None:
    """Messages known from their send enter the wheel in runs, others a few at a time."""
    one = rig()
    for number in range(300):
        place = one.delivery_policy.place(f"TIMER_DELIVER_MS\x01{START_MS + 9_000}\x02", "T", 0)
        start, offset, end = one.store.put(
            Message(
                (place.topic, place.queue_id),
                0,
                0,
                START_MS,
                HOST,
                b"%d" % number,
                place.text.encode(),
                0,
            ),
        )
        if number < 200:
            one.delivery_policy.on_timers_stored([offset, start, end - start, place.out_ms], ["T"])
    one.timers.step(one.now_ms)
    assert 200 < one.timers.state.queue_offset <= 200 + READS_PER_STEP
    one.work()
    assert one.timers.state.waiting == 300
    one.at(START_MS + 10_000)
    assert one.bodies() == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("tells", [False, True])
def test_a_full_disk_delays_deliveries_and_repeats_none(
    rig: OpenRig, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    one = rig()
    one.tells = tells
    sent = one_by_one(200)
    for body in sent:
        one.send(body, 2_000 if int(body) % 2 else 4_000)
    write = Segment.write
    for nth in range(1, 30):
        count = iter(range(1, 1_000))

        def fails(segment: Segment, at: int, data: bytes) -> None:
            is_timers = "timer" in str(segment.path)
            if is_timers and next(count) == nth:  # noqa: B023 - called within the round
                raise OSError(28, "No space left on device")
            write(segment, at, data)

        with monkeypatch.context() as patched:
            patched.setattr(Segment, "write", fails)
            for _ in range(3):
                with suppress(DiskFull):
                    one.timers.step(one.now_ms)
        one.now_ms += 300
    one.at(START_MS + 20_000)
    assert Counter(one.bodies()) == Counter(sent)
    assert one.timers.state.waiting == 0


def test_a_message_dropped_by_a_failed_log_is_not_counted_as_delivered(
    rig: OpenRig, killed: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rig()
    timed, delayed = one_by_one(20), [b"d%d" % number for number in range(20)]
    for body, other in zip(timed, delayed, strict=True):
        one.send(body, 2_000)
        raw = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
        one.put("SCHEDULE_TOPIC_XXXX", 0, other, raw)
    one.work()
    one.sync()
    one.now_ms += 5_000
    while not one.timers.dequeued:
        one.timers.step(one.now_ms)
    pwrite = disk.current.pwrite

    def fails(fd: int, data: bytes, at: int) -> int:
        if "commitlog" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(5, "Input/output error")
        return pwrite(fd, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(disk.current, "pwrite", fails)
        one.delays.deliver(one.now_ms)
        with pytest.raises(StoreError):
            one.timers.step(one.now_ms)
    assert (one.delays.offsets[1], one.timers.dequeued) == (FEW, 2 * FEW)
    one.sync()
    one.delays.save()
    two = killed(one)
    two.delays.load()
    two.at(two.now_ms + 1_000)
    while two.delays.deliver(two.now_ms):
        pass
    assert sorted(two.bodies()) == sorted(timed + delayed)


def test_a_full_queue_delays_due_messages_in_order_without_duplicates(
    rig: OpenRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One topic's queue has no room for a while; the messages behind it wait, too."""
    one = rig()
    timed, delayed = one_by_one(40), [b"d%d" % number for number in range(40)]
    for number, (body, other) in enumerate(zip(timed, delayed, strict=True)):
        topic = b"T" if number % 3 else b"U"
        place = one.delivery_policy.place(
            f"TIMER_DELIVER_MS\x01{START_MS + 2_000}\x02", topic.decode(), 0
        )
        one.put(place.topic, 0, body, place.text.encode())
        raw = b"DELAY\x011\x02REAL_TOPIC\x01%b\x02REAL_QID\x010\x02" % topic
        one.put("SCHEDULE_TOPIC_XXXX", 0, other, raw)
    one.work()
    one.now_ms += 5_000
    make_room = ConsumeQueue.make_room
    # The first file of each queue is full; every third attempt makes room.
    nth = iter(range(1_000))

    def fails(queue: ConsumeQueue) -> int:
        if queue.topic in ("T", "U") and next(nth) % 3:
            raise DiskFull("no room")
        return make_room(queue)

    def leave_no_room() -> None:
        for topic in ("T", "U"):
            queue = one.store.state.queues.find(topic, 0)
            if isinstance(queue, ConsumeQueue):
                queue.limit = min(queue.limit, queue.at)

    warned = 0
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "make_room", fails)
        for _ in range(200):
            leave_no_room()
            try:
                one.timers.step(one.now_ms)
            except DiskFull:
                warned += 1
            one.delays.deliver(one.now_ms)
    assert warned
    one.work()
    while one.delays.deliver(one.now_ms):
        pass
    for sent in (timed, delayed):
        for name, wanted in (("U", sent[0::3]), ("T", [b for b in sent if b not in sent[0::3]])):
            got = [body for body in one.bodies(name) if body in sent]
            assert got == wanted


def test_a_recall_behind_many_entries_takes_effect(rig: OpenRig) -> None:
    one = rig()
    for _ in range(2 * ENTRIES_PER_STEP):
        one.put(WHEEL_TOPIC, 0, b"junk", b"")
    one.send(b"gone", 3_000)
    one.send(b"kept", 3_000)
    for _ in range(2 * ENTRIES_PER_STEP):
        one.put(WHEEL_TOPIC, 0, b"junk", b"")
    one.send(b"0", 2_001, TIMER_DEL_UNIQKEY="T+gone", UNIQ_KEY="gone")
    one.at(START_MS + 10_000)
    assert one.bodies() == [b"kept"]


def test_an_unreadable_message_reverts_its_step(
    rig: OpenRig, killed: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rig()
    for body in one_by_one(5):
        one.send(body, 2_000)
    read = one.store.message_at
    count = iter(range(100))

    def fails(place: int) -> bytes | None:
        if next(count) == 3:
            raise DiskFull("no room")
        return read(place)

    with monkeypatch.context() as patched:
        patched.setattr(one.store, "message_at", fails)
        with pytest.raises(DiskFull):
            one.timers.step(one.now_ms)
    assert one.timers.state.waiting == 0
    one.work()
    assert one.timers.state.waiting == 5
    two = killed(one)
    assert two.timers.state.waiting == 5
    two.at(START_MS + 3_000)
    assert two.bodies() == one_by_one(5)


def test_a_changed_timer_precision_is_refused_while_messages_wait(rig: OpenRig) -> None:
    one = rig()
    one.send(b"a", 5_000)
    one.work()
    one.close()
    with pytest.raises(StoreError, match="timerPrecisionMs is 100, but 1 timer messages wait"):
        rig(timer_precision_ms=100)
    two = rig()
    two.at(START_MS + 6_000)
    two.close()
    three = rig(now_ms=START_MS + 6_000, timer_precision_ms=100)
    three.send(b"b", 250)
    three.at(START_MS + 6_299)
    assert three.bodies() == [b"a"]
    three.at(START_MS + 6_300)
    assert three.bodies() == [b"a", b"b"]


def test_with_sync_flush_only_messages_on_disk_enter_the_wheel(rig: OpenRig) -> None:
    one = rig(flush_disk_type="SYNC_FLUSH")
    one.send(b"a", 1_000)
    one.at(START_MS + 2_000)
    assert one.timers.state.queue_offset == 0
    one.sync()
    one.work()
    one.sync()
    assert one.bodies() == [b"a"]


def test_the_offsets_of_delay_levels_do_not_pass_the_durable_end_of_the_log(rig: OpenRig) -> None:
    one = rig()
    for _ in range(3):
        place = one.delivery_policy.place("DELAY\x011\x02", "T", 0)
        one.put(place.topic, place.queue_id, b"body", place.text.encode())
    one.now_ms += 1_000
    while one.delays.deliver(one.now_ms):
        pass
    assert len(one.bodies()) == 3
    one.delays.save()
    assert noted(one) == {}
    one.sync()
    one.delays.save()
    assert noted(one) == {1: 3}


def noted(rig: Rig) -> dict[int, int]:
    """The offsets in delayOffset.json."""
    found = Delays(rig.delays.path, rig.store, [1_000], rig.clock, rig.woken.append, rig.stats)
    found.load()
    return found.offsets


def test_removed_delay_levels_still_deliver_their_messages(rig: OpenRig) -> None:
    one = rig()
    place = one.delivery_policy.place("DELAY\x014\x02", "T", 0)
    one.put(place.topic, place.queue_id, b"body", place.text.encode())
    one.close()
    two = rig(message_delay_level="1s 2s")
    two.delays.load()
    for now_ms, expected in ((START_MS + 29_999, 0), (START_MS + 30_000, 1)):
        while two.delays.deliver(now_ms):
            pass
        assert len(two.bodies()) == expected


# ---- stores that Java wrote


def java_rig(tmp_path: Path, rig: OpenRig, now_ms: int, *, crash: bool) -> Rig:
    shutil.unpack_archive(STORES / "broker.tar.gz", tmp_path, filter="data")
    root = tmp_path / "broker"
    if crash:
        (root / "abort").touch()
    return rig(
        root,
        now_ms,
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=1_280,
        mapped_file_size_timer_log=3_328,
        max_hash_slot_num=64,
        max_index_num=512,
    )


@pytest.mark.parametrize("crash", [False, True])
def test_timers_in_a_store_of_java_are_delivered_on_time(
    tmp_path: Path, rig: OpenRig, crash: bool
) -> None:
    # Java stopped at ...254; the messages in its wheel are due at ...281, ...822 and so on.
    one = java_rig(tmp_path, rig, 1_795_227_255_000, crash=crash)
    offsets = {queue: one.store.max_offset("VecAuto", queue) for queue in range(4)}
    revive = one.store.max_offset("rmq_sys_REVIVE_LOG_vecCluster", 0)

    def came() -> list[int]:
        return [one.store.max_offset("VecAuto", queue) - offsets[queue] for queue in range(4)]

    one.work()
    assert one.timers.state.waiting == 4
    one.at(1_795_227_281_999)
    assert one.store.max_offset("rmq_sys_REVIVE_LOG_vecCluster", 0) == revive
    one.at(1_795_227_282_000)
    assert one.store.max_offset("rmq_sys_REVIVE_LOG_vecCluster", 0) == revive + 1
    one.at(1_795_230_820_999)
    assert came() == [0, 0, 0, 0]
    one.at(1_795_230_821_000)
    assert came() == [0, 0, 0, 1]
    one.at(1_795_230_823_000)
    assert came() == [1, 1, 0, 1]
    assert one.timers.metrics.counts["VecAuto"].count == 0


# ---- what an acting master left


def no_room(timer_log: TimerLog) -> None:
    raise DiskFull("no room to make a file")


def taken_timers(one: Rig) -> TakenTimers:
    state, metrics = one.timers.state, one.timers.metrics
    return TakenTimers(TimerParts(one.config, one.store, state, metrics, keeps_counts=False))


def sent_in_five_slots(one: Rig) -> list[bytes]:
    """Messages that are due a minute later, more than a file of the timer log has room for: 78."""
    sent = [b"%d" % number for number in range(500)]
    for number, body in enumerate(sent):
        one.send(body, 60_000 + 1_000 * (number % 5))
    one.work()
    one.sync()
    one.now_ms += 70_000
    return sent


@pytest.mark.parametrize("away_days", [0, 20])  # the wheel's round has 14 days
async def test_a_returning_master_takes_more_messages_back_than_a_file_of_the_log_holds(
    rig: OpenRig, away_days: int
) -> None:
    one = rig()
    sent = sent_in_five_slots(one)
    one.now_ms += away_days * DAY_MS
    # The acting master has sent what was before offset 0 of the queue: nothing.
    await taken_timers(one).take(one.now_ms, 0, one.now_ms)
    assert sorted(one.at(one.now_ms + 1_000).bodies()) == sorted(sent)


async def test_a_returning_master_keeps_what_it_has_no_room_to_take_back(
    rig: OpenRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rig()
    sent = sent_in_five_slots(one)
    taken = taken_timers(one)
    with monkeypatch.context() as full:
        full.setattr(TimerLog, "roll", no_room)
        with pytest.raises(DiskFull):
            await taken.take(one.now_ms, 0, one.now_ms)
    # In the end it goes on without; later it returns once more.
    assert sorted(one.at(one.now_ms + 1_000).bodies()) == sorted(sent)
    await taken.take(one.now_ms, 0, one.now_ms)
    assert sorted(one.at(one.now_ms + 1_000).bodies()) == sorted(sent)


@pytest.mark.parametrize("ticks", [1, 2, 3, 5, 8])
async def test_a_returning_master_that_has_no_more_time_to_take_back_delivers_all_once(
    rig: OpenRig, ticks: int
) -> None:
    one = rig()
    sent = sent_in_five_slots(one)
    taken = taken_timers(one)
    task = asyncio.create_task(taken.take(one.now_ms, 0, one.now_ms))
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert sorted(one.at(one.now_ms + 1_000).bodies()) == sorted(sent)
    await taken.take(one.now_ms, 0, one.now_ms)
    assert sorted(one.at(one.now_ms + 1_000).bodies()) == sorted(sent)


# ---- random histories


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_with_kills_lose_nothing_and_deliver_nothing_early(
    rig: OpenRig, killed: Callable[..., Rig], seed: int
) -> None:
    chance = random.Random(seed)
    one = rig()
    delivery_policy: dict[bytes, int] = {}
    recalled: set[bytes] = set()
    for number in range(400):
        what = chance.random()
        if what < 0.55:
            body = b"%d" % number
            wait_ms = int(10 ** chance.uniform(0, 5))
            delivery_policy[body] = one.now_ms + wait_ms
            one.send(body, wait_ms)
        elif what < 0.62:
            later = [
                body
                for body, at_ms in delivery_policy.items()
                if at_ms // 1_000 > one.now_ms // 1_000
            ]
            if later:
                body = chance.choice(later)
                slot_ms = (delivery_policy[body] - 1) // 1_000 * 1_000
                if slot_ms > one.now_ms:
                    recalled.add(body)
                    key = {"TIMER_DEL_UNIQKEY": f"T+{body.decode()}", "UNIQ_KEY": body.decode()}
                    one.send(b"0", slot_ms + 1 - one.now_ms, **key)
        elif what < 0.9:
            one.now_ms += int(10 ** chance.uniform(0, 4))
            for _ in range(chance.randrange(4)):
                one.timers.step(one.now_ms)
        elif what < 0.96:
            one.sync()
        elif what < 0.98:
            one = killed(one)
        else:
            one.close()
            one = rig(one.root, one.now_ms)
    one.at(one.now_ms + 200_000)
    came = Counter(body for body, _ in one.came())
    assert all(at_ms >= delivery_policy[body] for body, at_ms in one.came())
    assert came.keys() == delivery_policy.keys() - recalled
    assert max(came.values()) == 1
    assert one.timers.state.waiting == 0


def one_by_one(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_messages_known_from_sends_are_delivered_like_messages_read_from_the_log(
    rig: OpenRig, killed: Callable[..., Rig], tmp_path: Path
) -> None:
    """Near and far messages, in one slot and in many, mixed with messages read from the log."""
    came = []
    for tells in (False, True):
        one = rig(tmp_path / f"tells-{tells}")
        rand = random.Random(7)
        for number in range(1_500):
            one.tells = tells and number % 100 > 3
            far = rand.choice((0, 20, 9 * 86_400))
            one.send(b"%d" % number, 1_000 * (far + rand.randrange(1, 8)))
        one.work()
        assert one.timers.state.waiting == 1_500
        two = killed(one)
        for days in range(30):
            two.at(START_MS + days * DAY_MS // 2)
        came.append([(body, store_ms) for body, store_ms in two.came()])
    assert sorted(came[0]) == sorted(came[1])
    assert len(came[0]) == 1_500


def test_a_cut_of_the_log_takes_its_timers_with_it(rig: OpenRig) -> None:
    """Another message that lies there later is not taken for one of them."""
    one = rig()
    one.send(b"kept", 5_000)
    one.work()
    end = one.store.log_end
    one.send(b"gone", 5_000)
    one.send(b"gone too", 7_000)
    one.work()
    assert one.timers.state.waiting == 3
    plan = one.store.cut_plan(end)
    assert plan is not None
    plan.run()
    one.store.cut(plan)
    one.timers.state.cut_at_log()
    assert one.timers.state.waiting == 1
    one.put("Other", 0, b"gone", b"")
    one.send(b"new", 6_000)
    one.at(START_MS + 10_000)
    assert one.bodies() == [b"kept", b"new"]
    one.close()
    two = rig(now_ms=START_MS + DAY_MS)
    two.work()
    assert two.bodies() == [b"kept", b"new"]
