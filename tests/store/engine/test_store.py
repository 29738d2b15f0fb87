"""A store as a whole: opening, closing, syncing, refusing writes."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.message.record import decode_record
from aerobee.store.base.errors import (
    DamagedStore,
    DiskFull,
    MessageTooLarge,
    NotWritable,
    StoreError,
    StoreInUse,
)
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Batch
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import checkpoint
from aerobee.store.files.segment import Segment
from aerobee.store.log import walk

from ...clocks import Clock
from ..conftest import HOST, SMALL, OpenStore, put


def test_an_open_store_has_all_its_files_and_a_closed_one_no_abort(open_store: OpenStore) -> None:
    store = open_store()
    put(store, properties=b"KEYS\x01k\x02")
    store.index_pending()
    root = store.root
    assert (root / "abort").read_text() == str(os.getpid())
    assert (root / "lock").read_text() == "lock"
    store.close()
    assert sorted(path.name for path in root.iterdir()) == [
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "index",
        "lock",
    ]
    assert (root / "commitlog" / f"{0:020d}").stat().st_size == SMALL.segment_bytes
    assert (root / "consumequeue" / "T" / "0" / f"{0:020d}").stat().st_size == 320
    (name,) = (path.name for path in (root / "index").iterdir())
    assert len(name) == 17


def test_messages_and_keys_survive_a_clean_stop(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(500):
        put(store, queue_id=number % 3, body=bytes(200), properties=b"KEYS\x01k%d\x02" % number)
    end = store.log_end
    assert end > 2 * SMALL.segment_bytes
    store.close()
    again = open_store()
    assert again.log_end == end
    assert [again.max_offset("T", queue_id) for queue_id in range(3)] == [167, 167, 166]
    (data,) = again.query("T", "k321", 0, 1 << 60)
    assert decode_record(data).queue_offset == 107
    _, offset, _ = put(again, queue_id=2)
    assert offset == 166


def test_after_a_clean_stop_the_log_is_not_read_again(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    for _ in range(50):
        put(store)
    store.close()
    looked_at: list[int] = []
    real = walk.whole_record

    def counting(segment: Segment, place: int) -> object:
        looked_at.append(place)
        return real(segment, place)

    monkeypatch.setattr(walk, "whole_record", counting)
    open_store()
    assert len(looked_at) <= 2


def test_a_second_broker_on_one_store_is_refused(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    with pytest.raises(StoreInUse, match="already open"):
        MessageStore(store.root, SMALL, HOST, clock).open()
    put(store)
    assert store.get("T", 0, 0, 32, 1000).count == 1


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"segment_bytes": 128 << 10}, "mappedFileSizeCommitLog"),
        ({"queue_file_bytes": 340}, "mappedFileSizeConsumeQueue"),
        ({"index_slots": 17}, "maxHashSlotNum"),
    ],
)
def test_another_file_size_than_the_store_was_made_with_is_refused_and_harms_nothing(
    open_store: OpenStore, changed: dict[str, int], setting: str
) -> None:
    store = open_store()
    put(store, properties=b"KEYS\x01k\x02")
    store.close()
    settings = replace(SMALL, **changed)  # type: ignore[arg-type]
    with pytest.raises(DamagedStore, match=setting):
        open_store(settings=settings)
    again = open_store()
    assert len(again.query("T", "k", 0, 1 << 60)) == 1


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, open_store: OpenStore) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(StoreError, match="is a file, a folder is needed there"):
        open_store()


READ_ONLY = """
import os, sys
from pathlib import Path
from aerobee.store.base.errors import NotWritable
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.store import MessageStore
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    MessageStore(Path(sys.argv[1]), StoreSettings(), bytes(8), lambda: 1).open()
except NotWritable as wrong:
    print(wrong)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own folders."""
    folder = Path(tempfile.mkdtemp(prefix="aerobee-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("made_before", [False, True])
def test_a_read_only_folder_is_refused(open_folder: Path, made_before: bool) -> None:
    root = open_folder / "store"
    if made_before:
        root.mkdir()
        root.chmod(0o555)
    open_folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(root)], capture_output=True, text=True, check=True
    )
    assert "Permission denied" in done.stdout
    assert "choose another folder with storePathRootDir" in done.stdout


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """The system lets no file of this process grow beyond 100 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files_only")
def test_no_room_for_the_log_is_an_error_that_the_process_survives(
    open_store: OpenStore,
) -> None:
    settings = StoreSettings(
        segment_bytes=200 << 10, queue_file_bytes=320, index_slots=16, index_entries=48
    )
    store = open_store(settings=settings)
    for _ in range(3):
        with pytest.raises(DiskFull, match="free some space"):
            put(store)
    assert store.get("T", 0, 0, 32, 1000).count == 0


def test_each_error_has_its_class() -> None:
    assert issubclass(NotWritable, StoreError)


# ---- syncing


def test_a_sync_covers_the_messages_written_before_its_plan(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    _, _, end = put(store)
    plan = store.sync_plan()
    assert plan is not None
    assert store.durable_end == 0
    put(store)
    plan.run()
    store.synced(plan)
    assert store.durable_end == end
    assert store.log_end > end


def test_messages_that_arrive_during_a_sync_are_in_the_next_one(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    put(store)
    clock.ms += 60_000
    plan = store.sync_plan()
    assert plan is not None
    put(store)
    plan.run()
    store.synced(plan)
    clock.ms += 60_000
    following = store.sync_plan()
    assert following is not None
    assert [queue.topic for queue, _ in following.queues] == ["T"]
    assert [segment.base for segment in following.segments] == [0]


def test_without_new_messages_there_is_no_sync(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    put(store)
    clock.ms += 60_000
    plan = store.sync_plan()
    assert plan is not None
    plan.run()
    store.synced(plan)
    clock.ms += 60_000
    assert store.sync_plan() is None


def test_after_a_roll_a_plan_has_both_files(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(4):
        put(store, body=bytes(20_000))
    plan = store.sync_plan()
    assert plan is not None
    assert [segment.base for segment in plan.segments] == [64 << 10, 0]
    assert store.root / "commitlog" in plan.folders


def test_queues_are_synced_at_intervals_and_the_checkpoint_records_it(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    clock.ms += 10_000
    put(store, properties=b"KEYS\x01k\x02")
    plan = store.sync_plan()
    assert plan is not None
    assert plan.covers_all
    names = [segment.path.parent.parent.name for segment in plan.queue_segments]
    assert names == ["T", store.root.name]
    plan.run()
    store.synced(plan)
    put(store)
    soon = store.sync_plan()
    assert soon is not None
    assert not soon.covers_all
    store.save_checkpoint()
    saved = checkpoint.load(store.root / "checkpoint")
    assert (saved.log_ms, saved.queues_ms) == (clock.ms, clock.ms)
    assert saved.synced_end == plan.log_end
    assert saved.index_count == 2


def test_the_checkpoint_has_the_time_of_the_last_stored_message(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    put(store)
    last_ms = clock.ms
    clock.ms += 1
    store.put_all([])
    with pytest.raises(MessageTooLarge):
        put(store, body=bytes(SMALL.max_message_bytes + 1))
    with pytest.raises(Malformed):
        store.put_batch(Batch(("T", 0), 0, 1, bytes(8), b"no batch"), b"")
    plan = store.sync_plan()
    assert plan is not None
    plan.run()
    store.synced(plan)
    store.save_checkpoint()
    assert checkpoint.load(store.root / "checkpoint").log_ms == last_ms


def test_a_failed_sync_at_close_leaves_abort(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    put(store)

    def broken(self: Segment) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "sync", broken)
        with pytest.raises(StoreError, match="Input/output error"):
            store.close()
    assert (store.root / "abort").exists()
    assert open_store().max_offset("T", 0) == 1


def test_refused_writes_name_the_reason(open_store: OpenStore) -> None:
    store = open_store()
    put(store)
    store.write_staged()
    store.refuse_writes("the disk did not take a sync: broken")
    with pytest.raises(StoreError, match="broken"):
        put(store)
    assert store.get("T", 0, 0, 32, 1000).count == 1


def test_a_deleted_topic_is_gone_and_restarts_at_offset_0(open_store: OpenStore) -> None:
    store = open_store()
    for queue_id in (0, 1):
        put(store, queue_id=queue_id)
    put(store, "Other")
    store.delete_topic("T")
    assert store.topics() == {"Other": [0]}
    assert not (store.root / "consumequeue" / "T").exists()
    _, offset, _ = put(store)
    assert offset == 0
    assert store.get("T", 0, 0, 32, 1000).count == 1


def test_many_queues_need_few_file_descriptors_and_little_disk_space(
    open_store: OpenStore,
) -> None:
    settings = StoreSettings(segment_bytes=1 << 20, index_slots=16, index_entries=48)
    store = open_store(settings=settings)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        put(store, f"T{number}")
    assert len(os.listdir("/proc/self/fd")) - before <= 200 + 2
    folder = store.root / "consumequeue"
    blocks = sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
    assert blocks * 512 <= 200 * (64 << 10)
