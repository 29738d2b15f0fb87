"""A slave's store takes its master's log in chunks of any size; complete messages are readable."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from aerobee.protocol.message.record import TRANSACTION_PREPARED, decode_record
from aerobee.store.base.errors import DamagedStore, DiskFull, StoreError, WritesRefused
from aerobee.store.engine.store import MessageStore
from aerobee.store.files.segment import Segment
from aerobee.store.inspect.check import check
from aerobee.store.queues.consume_queue import ConsumeQueue

from ..conftest import SMALL, OpenStore, Unpack, java_settings, put
from .test_recovery import ALL, contents, crash, fill

REASON = "this broker is a slave"
SEGMENT = SMALL.segment_bytes


@pytest.fixture
def master(open_store: OpenStore) -> MessageStore:
    return open_store()


@pytest.fixture
def slave(open_store: OpenStore, tmp_path: Path) -> MessageStore:
    return following(open_store, tmp_path / "slave")


def following(open_store: OpenStore, root: Path) -> MessageStore:
    store = open_store(root)
    store.follower.follow(REASON)
    return store


def chunks(store: MessageStore, place: int, sizes: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """The chunks of these sizes that a master with this store sends from a place on."""
    while data := store.raw(place, next(sizes)):
        yield place, data
        place += len(data)


def any_sizes(seed: int, most: int) -> Iterator[int]:
    draw = Random(seed)
    while True:
        yield draw.randrange(1, most)


def follow(slave: MessageStore, master: MessageStore, seed: int = 1, most: int = 40_000) -> None:
    place = slave.log_end
    for at, data in chunks(master, place, any_sizes(seed, most)):
        slave.follower.append_raw(at, data)
        slave.follower.derive_new()


def log_files(store: MessageStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.state.log_folder.iterdir()}


def is_clean(store: MessageStore) -> bool:
    store.close()
    return not check(store.root).is_damaged


@pytest.mark.parametrize("most", [40, 5_000, 300_000])
def test_chunks_of_any_size_make_the_same_files_and_messages(
    master: MessageStore, slave: MessageStore, most: int
) -> None:
    fill(master, 60 if most == 40 else 400)
    follow(slave, master, most=most)
    assert len(log_files(master)) > (1 if most == 40 else 5)
    assert log_files(slave) == log_files(master)
    assert contents(slave) == contents(master)
    assert slave.whole_end == slave.log_end == master.log_end
    for number in range(0, 60, 7):
        (data,) = slave.query(f"T{number % 3}", f"u{number}", 0, ALL)
        assert decode_record(data).body.startswith(b"%d:" % number)
    assert len(list(slave.query("T0", "k0", 0, ALL))) == len(list(master.query("T0", "k0", 0, ALL)))
    assert is_clean(slave)


def test_a_message_is_readable_exactly_when_it_is_complete(
    master: MessageStore, slave: MessageStore
) -> None:
    ends = [put(master, body=b"x" * 50, properties=b"TAGS\x01a\x02")[2] for _ in range(20)]
    master.write_staged()
    for place in range(0, master.log_end, 9):
        slave.follower.append_raw(place, master.raw(place, 9))
        found = slave.follower.derive_new()
        whole = sum(end <= slave.log_end for end in ends)
        assert slave.max_offset("T", 0) == whole
        assert slave.whole_end == (ends[whole - 1] if whole else 0)
        assert found == ({("T", 0)} if place < slave.whole_end else set())


def test_the_log_starts_at_the_start_of_the_masters_file(
    open_store: OpenStore, master: MessageStore, tmp_path: Path
) -> None:
    slave = open_store(tmp_path / "slave")
    slave.make_room()  # the empty first file of an own log; following replaces it
    slave.follower.follow(REASON)
    fill(master, 200)
    start = master.log_end - master.log_end % SEGMENT
    for place, data in chunks(master, start, any_sizes(3, 20_000)):
        slave.follower.append_raw(place, data)
        slave.follower.derive_new()
    assert slave.log_start == start > 0
    last = max(log_files(master))
    assert log_files(slave) == {last: log_files(master)[last]}
    found = contents(slave)
    assert found
    for key, bodies in found.items():
        assert contents(master)[key][-len(bodies) :] == bodies
        assert slave.max_offset(*key) == master.max_offset(*key)
    assert is_clean(slave)


def test_a_slave_refuses_messages_of_producers_with_the_reason(
    master: MessageStore, slave: MessageStore
) -> None:
    fill(master, 10)
    with pytest.raises(WritesRefused, match=REASON):
        put(slave)
    follow(slave, master)
    for topic in ("T0", "new"):
        with pytest.raises(WritesRefused, match=REASON):
            put(slave, topic)
    slave.follower.cut_torn()
    with pytest.raises(WritesRefused, match=REASON):
        put(slave, "T0")
    assert slave.log_end == master.log_end


def test_a_chunk_for_another_place_is_refused_with_both_places(
    master: MessageStore, slave: MessageStore
) -> None:
    fill(master, 10)
    follow(slave, master)
    end = slave.log_end
    for place, data in ((end - 8, b"12345678"), (end + 8, b"1"), (end + 1, b"")):
        with pytest.raises(DamagedStore, match=rf"goes on at {place} .* ends at {end}.*delete"):
            slave.follower.append_raw(place, data)
    slave.follower.append_raw(end, b"")  # a heartbeat
    assert slave.log_end == end


def test_a_log_with_files_of_another_size_is_refused(
    open_store: OpenStore, master: MessageStore, tmp_path: Path
) -> None:
    settings = replace(SMALL, segment_bytes=40_000)
    slave = open_store(tmp_path / "slave", settings)
    slave.follower.follow(REASON)
    fill(master, 100)
    with pytest.raises(DamagedStore, match=r"mappedFileSizeCommitLog.* must be the same"):
        slave.follower.append_raw(SEGMENT, master.raw(SEGMENT, 100))
    slave.follower.append_raw(0, master.raw(0, 30_000))
    with pytest.raises(DamagedStore, match=r"mappedFileSizeCommitLog.* must be the same"):
        slave.follower.append_raw(30_000, master.raw(30_000, 30_000))
    assert slave.log_end == 30_000


def test_log_files_that_end_too_early_are_reported(
    open_store: OpenStore, master: MessageStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(SMALL, segment_bytes=2 * SEGMENT)
    slave = open_store(tmp_path / "slave", settings)
    slave.follower.follow(REASON)
    fill(master, 100)
    follow(slave, master)
    assert 0 < slave.whole_end < SEGMENT
    assert "mappedFileSizeCommitLog must be the same" in caplog.text


def test_a_partial_message_is_dropped_when_the_connection_breaks(
    master: MessageStore, slave: MessageStore
) -> None:
    (first, _, end), (_, _, more) = put(master, body=b"one"), put(master, body=b"two")
    master.write_staged()
    slave.follower.append_raw(0, master.raw(0, more - 5))
    slave.follower.derive_new()
    assert slave.log_end == more - 5
    slave.follower.cut_torn()
    assert slave.log_end == slave.whole_end == end
    assert slave.raw(first, 1 << 20) == master.raw(first, end)
    follow(slave, master)
    assert contents(slave) == contents(master)
    assert log_files(slave) == log_files(master)


def test_complete_messages_without_room_in_their_queue_are_not_dropped(
    open_store: OpenStore,
    master: MessageStore,
    slave: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(master, 20)
    slave.follower.append_raw(0, master.raw(0, SEGMENT))

    def is_full(queue: ConsumeQueue, count: int = 1) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as full:
        full.setattr(ConsumeQueue, "make_room", is_full)
        for again in (slave.follower.derive_new, slave.follower.cut_torn):
            with pytest.raises(DiskFull, match="no room"):
                again()
        assert slave.log_end == master.log_end
        slave.close()
    assert "no room" in caplog.text
    assert contents(open_store(slave.root)) == contents(master)


def test_a_failed_write_stops_following_until_a_restart(
    open_store: OpenStore,
    master: MessageStore,
    slave: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(master, 20)
    slave.follower.append_raw(0, master.raw(0, 3_000))
    slave.follower.derive_new()

    def broken(segment: Segment, at: int, data: bytes) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as wrong:
        wrong.setattr(Segment, "write", broken)
        with pytest.raises(StoreError, match="did not take a write"):
            slave.follower.append_raw(3_000, b"more")
    with pytest.raises(WritesRefused, match="did not take a write"):
        slave.follower.append_raw(3_000, b"more")
    slave.follower.cut_torn()
    assert slave.log_end == 3_000
    slave.close()
    again = following(open_store, slave.root)
    follow(again, master)
    assert contents(again) == contents(master)
    assert log_files(again) == log_files(master)


def test_after_a_kill_following_resumes_behind_the_last_complete_message(
    open_store: OpenStore, master: MessageStore, slave: MessageStore, tmp_path: Path
) -> None:
    ends = []
    for number in range(120):
        ends.append(put(master, f"T{number % 3}", body=b"%d" % number * 400)[2])
    master.write_staged()
    killed = 0
    for number, (place, data) in enumerate(chunks(master, 0, any_sizes(5, 30_000))):
        slave.follower.append_raw(place, data)
        if number % 2:
            slave.follower.derive_new()
        if number % 3 == 0 and (plan := slave.sync_plan()):
            plan.run()
            slave.synced(plan)
            slave.save_checkpoint()
        again = following(open_store, crash(slave, tmp_path / f"killed{number}"))
        assert again.log_end == max([end for end in ends if end <= slave.log_end], default=0)
        assert again.whole_end == again.log_end
        follow(again, master)
        assert contents(again) == contents(master)
        assert log_files(again) == log_files(master)
        assert is_clean(again)
        killed += 1
    assert killed > 5


def test_a_stop_leaves_no_bytes_behind_the_last_complete_message(
    open_store: OpenStore, master: MessageStore, slave: MessageStore
) -> None:
    fill(master, 30)
    for place, data in chunks(master, 0, any_sizes(7, 4_000)):
        slave.follower.append_raw(place, data)
        slave.follower.derive_new()
        if slave.log_end > slave.whole_end > 0:
            break
    end, found = slave.whole_end, contents(slave)
    slave.close()
    promoted = open_store(slave.root)
    assert promoted.log_end == end
    assert contents(promoted) == found
    assert not any(log_files(promoted)[max(log_files(promoted))][end % SEGMENT :])
    put(promoted, "T0", body=b"as a master")
    promoted.write_staged()
    assert contents(promoted)["T0", 0][-1] == b"as a master"


def test_damage_stops_reading_is_reported_once_and_is_repaired_by_a_restart(
    open_store: OpenStore,
    master: MessageStore,
    slave: MessageStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    places = [put(master, body=b"%d" % number * 30)[0] for number in range(9)]
    master.write_staged()
    data = bytearray(master.raw(0, SEGMENT))
    data[places[4] + 100] ^= 1  # a byte of the body
    for at in range(0, len(data), 100):
        slave.follower.append_raw(at, bytes(data[at : at + 100]))
        slave.follower.derive_new()
    assert slave.max_offset("T", 0) == 4
    assert slave.whole_end == places[4]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert f"damaged at {places[4]}" in told[0].getMessage()
    slave.follower.cut_torn()  # the records behind the damage may have been acknowledged
    assert slave.log_end == master.log_end
    slave.close()
    again = following(open_store, slave.root)
    assert again.log_end == places[4]
    follow(again, master)
    assert contents(again) == contents(master)


def test_messages_without_a_queue_of_their_own_get_no_entry(
    master: MessageStore, slave: MessageStore
) -> None:
    put(master, body=b"half", sys_flag=TRANSACTION_PREPARED)
    put(master, "SCHEDULE_TOPIC_XXXX", 2, b"later", b"DELAY\x013\x02", tags_code=None)
    put(master, body=b"seen")
    master.write_staged()
    follow(slave, master)
    assert contents(slave) == contents(master)
    queue = slave.state.queues.find("SCHEDULE_TOPIC_XXXX", 2)
    other = master.state.queues.find("SCHEDULE_TOPIC_XXXX", 2)
    assert isinstance(queue, ConsumeQueue)
    assert isinstance(other, ConsumeQueue)
    assert queue.entry(0) == other.entry(0)


def test_a_topic_recreated_on_the_master_restarts_its_queues(
    master: MessageStore, slave: MessageStore
) -> None:
    for body in (b"a", b"b", b"c"):
        put(master, body=body)
    master.write_staged()
    follow(slave, master)
    master.delete_topic("T")
    put(master, body=b"d")
    master.write_staged()
    follow(slave, master)
    assert contents(slave) == {("T", 0): [b"d"]}


@pytest.mark.parametrize("name", ["main", "bcq", "crc", "lmq", "sync"])
def test_a_java_masters_log_gives_the_same_queues(
    name: str, unpack: Unpack, open_store: OpenStore, tmp_path: Path
) -> None:
    root, written = unpack(name)
    settings = java_settings(written["config"], lmq_enable=name == "lmq")
    master = open_store(root, settings)
    slave = open_store(tmp_path / "slave", settings)
    slave.follower.follow(REASON)
    start = master.log_start
    for place, data in chunks(master, start, any_sizes(2, 9_000)):
        slave.follower.append_raw(place, data)
        slave.follower.derive_new()
    assert slave.log_end == slave.whole_end == master.log_end
    assert log_files(slave) == log_files(master)
    assert slave.topics().keys() == master.topics().keys()
    for topic, queue_ids in master.topics().items():
        for queue_id in queue_ids:
            assert slave.max_offset(topic, queue_id) == master.max_offset(topic, queue_id)
    assert is_clean(slave)


def test_with_sync_flush_a_slave_shows_only_synced_messages(
    open_store: OpenStore, master: MessageStore, tmp_path: Path
) -> None:
    slave = open_store(tmp_path / "slave", replace(SMALL, sync_flush=True))
    slave.follower.follow(REASON)
    fill(master, 30)
    follow(slave, master)
    assert contents(slave) == {}
    slave.sync()
    assert contents(slave) == contents(master)
    assert slave.durable_end == master.log_end
