"""Stores after a crash: nothing written is lost, nothing torn comes back, twice is as once."""

import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from aerobee.protocol.message.record import TRANSACTION_PREPARED, decode_all, decode_record
from aerobee.store.base import status
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import checkpoint

from ...clocks import Clock
from ..conftest import SMALL, OpenStore, put

ALL = 1 << 60


def contents(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    """The bodies in every queue, after a check that its offsets are dense."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            offset = store.min_offset(topic, queue_id)
            bodies = found[topic, queue_id] = []
            while offset < store.max_offset(topic, queue_id):
                result = store.get(topic, queue_id, offset, 32, 1 << 20)
                assert result.status == status.FOUND, (topic, queue_id, offset)
                for record in decode_all(b"".join(result.records)):
                    assert record.is_body_intact
                    assert (record.topic, record.queue_id) == (topic, queue_id)
                    assert record.queue_offset == offset
                    bodies.append(record.body)
                    offset += 1
    return {key: bodies for key, bodies in found.items() if bodies}


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in ("checkpoint", "abort")
    }


def crash(store: MessageStore, to: Path) -> Path:
    """What a kill of the process would leave: the files as they are now."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(store.root, to)
    return to


def fill(store: MessageStore, count: int, seed: int = 1, start: int = 0) -> None:
    draw = random.Random(seed)
    for number in range(start, start + count):
        body = b"%d:" % number + draw.randbytes(draw.randrange(0, 2_000))
        raw = b"UNIQ_KEY\x01u%d\x02KEYS\x01k%d\x02" % (number, number % 5)
        put(store, f"T{number % 3}", number % 2, body=body, properties=raw)
    store.write_staged()


@pytest.mark.parametrize("count", [0, 1, 40, 300])
@pytest.mark.parametrize("synced_at", [None, 0.3, 1.0])
def test_after_a_kill_everything_written_is_there(
    open_store: OpenStore, tmp_path: Path, clock: Clock, count: int, synced_at: float | None
) -> None:
    store = open_store()
    first = int(count * (synced_at or 0))
    fill(store, first)
    if synced_at is not None:
        clock.ms += 60_000
        plan = store.sync_plan()
        if plan is not None:
            plan.run()
            store.synced(plan)
        store.save_checkpoint()
    fill(store, count - first, seed=2, start=first)
    expected = contents(store)
    assert sum(map(len, expected.values())) == count
    again = open_store(crash(store, tmp_path / "copy"))
    assert contents(again) == expected
    assert again.log_end == store.log_end
    for number in range(0, count, 7):
        (data,) = again.query(f"T{number % 3}", f"u{number}", 0, ALL)
        assert decode_record(data).body.startswith(b"%d:" % number)
    _, offset, _ = put(again, "T0", 0, body=b"next")
    assert offset == len(expected.get(("T0", 0), []))


def test_what_was_staged_but_not_written_is_gone_without_a_trace(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    fill(store, 50)
    expected, end = contents(store), store.log_end
    for number in range(40):
        put(store, "T0", 0, body=b"staged")
        put(store, f"New{number}", 0, body=b"staged")
    again = open_store(crash(store, tmp_path / "copy"))
    assert contents(again) == expected
    assert again.log_end == end


SECTOR = 512
TORN_PROPERTIES = b"KEYS\x01torn\x02long\x01" + b"x" * 1_200 + b"\x02"


@pytest.mark.parametrize("keep_checkpoint", [True, False])
@pytest.mark.parametrize("before", [0, 17, 430, 500])
def test_a_torn_last_record_is_cut_off_wherever_it_was_torn(
    open_store: OpenStore, tmp_path: Path, before: int, keep_checkpoint: bool
) -> None:
    store = open_store()
    fill(store, 10)
    put(store, "T1", 0, body=bytes(before))
    store.write_staged()
    expected = contents(store)
    start = store.log_end
    put(store, "T1", 0, body=b"torn " * 60, properties=TORN_PROPERTIES)
    store.write_staged()
    store.index_pending()
    end = store.log_end
    first, last = start // SECTOR, (end - 1) // SECTOR
    for chosen in range(1, 1 << (last - first + 1)):
        root = crash(store, tmp_path / "copy")
        if not keep_checkpoint:
            (root / "checkpoint").unlink()
        with open(root / "commitlog" / f"{0:020d}", "r+b") as file:
            for number in range(first, last + 1):
                if chosen >> (number - first) & 1:
                    low, high = max(start, number * SECTOR), min(end, (number + 1) * SECTOR)
                    file.seek(low)
                    file.write(bytes(high - low))
        again = MessageStore(root, SMALL, bytes(8), lambda: 1_700_000_000_000)
        again.open()
        assert again.log_end == start, bin(chosen)
        assert contents(again) == expected
        assert again.query("T1", "torn", 0, ALL) == []
        data = (root / "commitlog" / f"{0:020d}").read_bytes()
        assert data[start:] == bytes(len(data) - start)
        again.close()


def test_a_record_torn_at_any_byte_before_its_properties_is_cut_off(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    fill(store, 5)
    start = store.log_end
    put(store, "T1", 0, body=b"torn ", properties=b"")
    store.write_staged()
    path = store.root / "commitlog" / f"{0:020d}"
    whole = path.read_bytes()
    root = crash(store, tmp_path / "copy")
    for end in range(start, store.log_end - 4):
        (root / "abort").write_text("1")
        torn = whole[:end].ljust(len(whole), b"\0")
        (root / "commitlog" / path.name).write_bytes(torn)
        again = MessageStore(root, SMALL, bytes(8), lambda: 1_700_000_000_000)
        again.open()
        assert again.log_end == start
        again.close()


def test_zeros_inside_properties_are_no_damage(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    put(store, body=b"odd", properties=b"a\x01" + bytes(600) + b"\x02")
    store.write_staged()
    again = open_store(crash(store, tmp_path / "copy"))
    assert contents(again) == {("T", 0): [b"odd"]}


def test_old_records_behind_the_end_never_come_back(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    places = [put(store, body=b"%03d" % number)[0] for number in range(9)]
    store.write_staged()
    root = crash(store, tmp_path / "copy")
    with open(root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(places[5] + 90)
        file.write(b"\xff")
    again = open_store(root)
    assert again.log_end == places[5]
    # The next record ends exactly where the old one after the torn one began.
    put(again, body=b"new")
    again.write_staged()
    twice = open_store(crash(again, tmp_path / "second"))
    expected = [b"%03d" % number for number in range(5)] + [b"new"]
    assert contents(twice) == {("T", 0): expected}


def test_recovery_twice_is_the_same_as_once(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    fill(store, 200)
    root = crash(store, tmp_path / "copy")
    first = open_store(root)
    once = files_of(root)
    assert not first.state.log.staged
    second = open_store(crash(first, tmp_path / "again"))
    assert files_of(second.root) == once


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/T1", "consumequeue/T0/0", "index"])
def test_queues_and_index_that_were_deleted_are_made_again(
    open_store: OpenStore, tmp_path: Path, clock: Clock, lost: str, is_clean: bool
) -> None:
    store = open_store()
    fill(store, 200)
    expected = contents(store)
    root = store.root
    if is_clean:
        store.close()
    else:
        root = crash(store, tmp_path / "copy")
    shutil.rmtree(root / lost, ignore_errors=True)
    again = open_store(root)
    assert contents(again) == expected
    assert len(again.query("T1", "k0", 0, ALL)) == 13


def test_index_entries_behind_the_end_of_the_log_go(
    open_store: OpenStore, tmp_path: Path, clock: Clock
) -> None:
    store = open_store()
    fill(store, 200)
    store.index_pending()
    root = crash(store, tmp_path / "copy")
    # As Java notes it: index files that were full by then are kept, and here the log is not.
    checkpoint.save(root / "checkpoint", checkpoint.Checkpoint(index_ms=clock.ms))
    for path in (root / "commitlog").iterdir():
        if path.name != f"{0:020d}":
            path.unlink()
    again = open_store(root)
    assert 0 < again.log_end < SMALL.segment_bytes
    assert again.state.index.end_offset < again.log_end
    count = sum(map(len, contents(again).values()))
    for number in range(200):
        found = again.query(f"T{number % 3}", f"u{number}", 0, ALL)
        assert len(found) == (number < count)


def test_entries_that_java_left_behind_the_end_of_a_queue_do_not_count(
    open_store: OpenStore,
) -> None:
    store = open_store()
    fill(store, 70)
    expected = contents(store)
    store.close()
    path = max((store.root / "consumequeue" / "T1" / "1").iterdir())
    data = bytearray(path.read_bytes())
    end = len(data.rstrip(b"\0")) // 20 * 20 + 20
    assert end + 20 <= len(data)
    # Of a message that a queue had there before the log was cut and grew again.
    data[end : end + 20] = data[end - 40 : end - 20]
    path.write_bytes(data)
    checkpoint.save(store.root / "checkpoint", checkpoint.Checkpoint(1, 1, 1))
    assert contents(open_store()) == expected


@pytest.mark.parametrize("is_synced", [False, True])
def test_keys_that_waited_for_the_disk_are_indexed_after_a_crash(
    open_store: OpenStore, tmp_path: Path, clock: Clock, is_synced: bool
) -> None:
    settings = replace(SMALL, sync_flush=True)
    store = open_store(settings=settings)
    for number in range(6):
        put(store, properties=b"KEYS\x01k%d\x02" % number)
        if number == 2:
            clock.ms += 60_000
            plan = store.sync_plan()
            assert plan is not None
            plan.run()
            store.synced(plan)
    if is_synced:
        clock.ms += 60_000
        plan = store.sync_plan()
        assert plan is not None
        plan.run()
        store.synced(plan)
    store.write_staged()
    store.save_checkpoint()
    again = open_store(crash(store, tmp_path / "copy"), settings)
    for number in range(6):
        assert len(again.query("T", f"k{number}", 0, ALL)) == 1, number


def test_a_queue_that_lost_its_end_is_filled_up(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 200)
    expected = contents(store)
    store.close()
    folder = store.root / "consumequeue" / "T1" / "1"
    last = max(folder.iterdir())
    last.write_bytes(bytes(320))
    assert contents(open_store()) == expected


def test_a_damaged_record_in_the_middle_costs_that_record_only(
    open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    places = [put(store, body=b"%03d" % number)[0] for number in range(30)]
    store.close()
    with open(store.root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(places[10])
        file.write(b"\xff" * 20)
    shutil.rmtree(store.root / "consumequeue")
    again = open_store()
    assert f"the record at {places[10]} of the log is damaged" in caplog.text
    assert again.max_offset("T", 0) == 30
    found = again.get("T", 0, 11, 32, 1 << 20)
    assert decode_record(found.records[0]).body == b"011"
    assert again.log_end == store.log_end


def test_the_first_files_of_the_log_may_be_gone(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    for number in range(100):
        put(store, body=b"%d" % number + bytes(2_000))
    store.close()
    (store.root / "commitlog" / f"{0:020d}").unlink()
    shutil.copytree(store.root, tmp_path / "rebuilt")
    shutil.rmtree(tmp_path / "rebuilt" / "consumequeue")
    for root in (store.root, tmp_path / "rebuilt"):
        again = open_store(root)
        least = again.min_offset("T", 0)
        assert again.log_start == SMALL.segment_bytes
        assert 0 < least < 40
        assert contents(again)["T", 0][0].startswith(b"%d\0" % least)
        assert again.max_offset("T", 0) == 100
        assert again.get("T", 0, 0, 32, 1000).status == status.OFFSET_TOO_SMALL
        assert again.offset_at("T", 0, 0) == least


def test_without_a_log_the_queues_go_too(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 50)
    store.close()
    shutil.rmtree(store.root / "commitlog")
    again = open_store()
    assert contents(again) == {}
    _, offset, _ = put(again, "T0", 0)
    assert offset == 0


def test_a_topic_made_again_keeps_its_new_messages_after_a_crash(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    for number in range(20):
        put(store, body=b"old %d" % number)
    store.delete_topic("T")
    for number in range(7):
        put(store, body=b"new %d" % number)
    store.write_staged()
    for lost in (False, True):
        root = crash(store, tmp_path / "copy")
        if lost:
            shutil.rmtree(root / "consumequeue")
        again = open_store(root)
        assert contents(again) == {("T", 0): [b"new %d" % number for number in range(7)]}
        again.close()


def test_a_prepared_message_at_the_end_does_not_hide_the_next(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    put(store, body=b"1")
    put(store, body=b"prepared", sys_flag=TRANSACTION_PREPARED)
    store.close()
    again = open_store()
    assert again.log_end == store.log_end
    put(again, body=b"2")
    again.write_staged()
    after = open_store(crash(again, tmp_path / "copy"))
    assert contents(after) == {("T", 0): [b"1", b"2"]}


def test_progress_is_told_on_long_work(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.walk.PROGRESS_BYTES", 10_000)
    store = open_store()
    fill(store, 100)
    store.close()
    shutil.rmtree(store.root / "consumequeue")
    told: list[tuple[int, int, int]] = []
    again = MessageStore(store.root, SMALL, bytes(8), lambda: 1)
    again.open(lambda *steps: told.append(steps))
    again.close()
    assert len(told) >= 2
    assert told == sorted(told)
    assert all(0 < done <= whole and 0 < count <= 100 for done, whole, count in told)


CHILD = """
import random, sys, time
from pathlib import Path
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore
root, start = Path(sys.argv[1]), int(sys.argv[2])
settings = StoreSettings(
    segment_bytes=64 << 10, queue_file_bytes=320, index_slots=16, index_entries=48
)
store = MessageStore(root, settings, bytes(8), lambda: time.time_ns() // 1_000_000)
store.open()
number = start
while True:
    done = []
    for _ in range(random.randrange(1, 40)):
        body = b"%d " % number + random.randbytes(random.randrange(200))
        raw = b"KEYS\\x01k%d\\x02" % number
        _, offset, _ = store.put(Message(("T", number % 3), 0, 0, 1, bytes(8), body, raw, 0))
        done.append(f"{number} {number % 3} {offset}")
        number += 1
    store.write_staged()
    print("\\n".join(done), flush=True)
    if random.random() < 0.3:
        plan = store.sync_plan()
        if plan is not None:
            plan.run()
            store.synced(plan)
            store.save_checkpoint()
    if random.random() < 0.3:
        store.index_pending()
"""


def test_a_killed_process_loses_nothing_it_had_answered(
    open_store: OpenStore, tmp_path: Path
) -> None:
    root = tmp_path / "killed"
    acknowledged: dict[int, tuple[int, int]] = {}
    for round_number in range(5):
        start = 1_000_000 * round_number
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(root), str(start)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            for _ in range(200 + 150 * round_number):
                number, queue_id, offset = map(int, child.stdout.readline().split())
                acknowledged[number] = (queue_id, offset)
            os.kill(child.pid, signal.SIGKILL)
            for line in child.stdout.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    number, queue_id, offset = map(int, line.split())
                    acknowledged[number] = (queue_id, offset)
            child.wait()
        assert (root / "abort").exists()
    store = open_store(root)
    found = contents(store)
    assert len(set(acknowledged.values())) == len(acknowledged)
    for number, (queue_id, offset) in acknowledged.items():
        assert found["T", queue_id][offset].startswith(b"%d " % number)
    for number in random.Random(1).sample(sorted(acknowledged), 20):
        (data,) = store.query("T", f"k{number}", 0, ALL)
        assert decode_record(data).body.startswith(b"%d " % number)
