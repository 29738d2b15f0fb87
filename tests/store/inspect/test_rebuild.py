"""`rebuild` makes equal queues and index files from the log, and touches no other file."""

import shutil
import struct
from pathlib import Path

import pytest
from aerobee.store.base.errors import StoreError, StoreInUse
from aerobee.store.base.settings import StoreSettings
from aerobee.store.files.lock import sync_had_failed, write_abort
from aerobee.store.index.index import Index
from aerobee.store.inspect import rebuild as verb
from aerobee.store.inspect.check import check
from aerobee.store.inspect.rebuild import rebuild, settings_of

from ...clocks import Clock
from ..conftest import SMALL, OpenStore, Unpack, java_settings, put
from ..engine.test_recovery import contents, fill
from ..test_java_stores import check_state, files_of, reopened

VARIANTS = ["main", "killed", "crc", "lmq", "sync", "bcq"]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("with_settings", [False, True])
def test_queues_and_index_of_a_java_store_are_rebuilt_as_java_wrote_them(
    name: str, with_settings: bool, unpack: Unpack, open_store: OpenStore
) -> None:
    root, written = unpack(name)
    settings = java_settings(written["config"], lmq_enable=name == "lmq")
    log = files_of(root / "commitlog")
    made = rebuild(root, settings if with_settings else None)
    assert made.entries == sum(
        len(queue["units_offset_pos_size_tagsCode_batchNum"])
        if name != "bcq"
        else queue["maxOffset"]
        for queue in reopened(name)["state"]["queues"].values()
    )
    check_state(open_store(root, settings), reopened(name)["state"])
    if name not in ("killed",):  # opening this store removes the spare file
        assert files_of(root / "commitlog") == log


def test_a_foreign_file_causes_one_warning_and_stays(
    open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    fill(store, 200)
    expected = contents(store)
    store.close()
    root = store.root
    queue = next((root / "consumequeue").glob("*/0"))
    strays = [
        (root / "commitlog", ".DS_Store"),
        (root / "commitlog", "~backup"),
        (queue, ".DS_Store"),
        (queue.parent, "notes"),
        (root / "consumequeue", "notes"),
        (root / "index", ".DS_Store"),
        (root / "index", "zzz"),
    ]
    for folder, name in strays:
        (folder / name).write_text("mine")
    (root / "commitlog" / "lost+found").mkdir()
    for again in (False, True):
        if again:
            rebuild(root, SMALL)
        caplog.clear()
        store = open_store()
        assert contents(store) == expected
        store.close()
        warned = [text for text in caplog.messages if "is not the store's" in text]
        assert len(warned) == 3  # one each for the log, the queues and the index
        assert "commitlog/.DS_Store is not the store's and is passed over, as are 2" in warned[0]
        assert [(folder / name).read_text() for folder, name in strays] == ["mine"] * len(strays)


def test_the_repair_of_a_damaged_index_file_keeps_foreign_files(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 200)
    store.close()
    first = min((store.root / "index").iterdir())
    first.write_bytes(bytes(40) + first.read_bytes()[40:])
    (store.root / "index" / "zzz").write_text("mine")
    open_store()
    assert (store.root / "index" / "zzz").read_text() == "mine"


def test_damaged_queues_and_index_files_are_repaired(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    fill(store, 200)
    expected = contents(store)
    store.close()
    for folder in ("consumequeue", "index"):
        for path in (store.root / folder).rglob("*"):
            if path.is_file():
                data = bytearray(path.read_bytes())
                data[40:120] = bytes(byte ^ 0x5A for byte in data[40:120])
                path.write_bytes(data)
    assert check(store.root).is_damaged
    rebuild(store.root, SMALL)
    assert check(store.root).findings == []
    assert contents(open_store()) == expected


def test_a_damaged_record_costs_only_that_record(open_store: OpenStore) -> None:
    store = open_store()
    places = [put(store, body=b"%d" % number * 9)[0] for number in range(40)]
    store.close()
    path = store.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[9] + 90] ^= 1
    path.write_bytes(data)
    rebuild(store.root)
    found = [line.text for line in check(store.root).findings if line.is_damage]
    assert len(found) == 1
    assert f"the record at {places[9]} of the log has a body with another crc" in found[0]
    again = open_store()
    assert again.log_end == store.log_end
    assert again.max_offset("T", 0) == 40


def test_a_queue_whose_messages_were_deleted_keeps_its_offsets(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(7):
        put(store, "Old")
    for _ in range(60):
        put(store, "New", body=bytes(3_000))
    store.close()
    (store.root / "commitlog" / f"{0:020d}").unlink()
    least = rebuild_and_least(store.root, open_store)
    assert least > 0
    again = open_store()
    assert put(again, "Old")[1] == 7
    assert put(again, "New")[1] == 60


def rebuild_and_least(root: Path, open_store: OpenStore) -> int:
    rebuild(root, SMALL)
    store = open_store()
    least = store.min_offset("New", 0)
    store.close()
    return least


def test_a_deleted_topic_does_not_come_back(open_store: OpenStore) -> None:
    store = open_store()
    for topic in ("Kept", "Deleted"):
        for _ in range(5):
            put(store, topic)
    store.delete_topic("Deleted")
    store.close()
    rebuild(store.root)
    assert set(open_store().topics()) == {"Kept"}


def test_a_store_in_use_is_left_alone(open_store: OpenStore) -> None:
    store = open_store()
    put(store)
    store.write_staged()
    with pytest.raises(StoreInUse):
        rebuild(store.root)
    assert store.get("T", 0, 0, 1, 1_000).count == 1
    assert (store.root / "consumequeue" / "T" / "0").is_dir()


class CutShort(Exception):
    """An interruption in the middle of the work."""


def cut_short(*_: object) -> None:
    raise CutShort


def test_a_failed_sync_stays_recorded_until_the_rebuild_is_complete(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store, 20)
    store.close()
    write_abort(store.root, sync_failed=True)
    with monkeypatch.context() as patched:
        patched.setattr(verb, "sync_folder", cut_short)
        with pytest.raises(CutShort):
            rebuild(store.root, SMALL)
    assert sync_had_failed(store.root)
    rebuild(store.root, SMALL)
    assert not (store.root / "abort").exists()


def test_the_next_start_completes_an_interrupted_rebuild(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store, 150)
    expected = contents(store)
    store.close()

    monkeypatch.setattr(verb, "sync_folder", cut_short)
    with pytest.raises(CutShort):
        rebuild(store.root, SMALL)
    assert not any((store.root / "consumequeue").rglob("0*"))
    again = open_store()
    assert contents(again) == expected
    assert len(again.query("T1", "k0", 0, 1 << 62)) == 10
    again.close()
    assert check(store.root).findings == []


def test_the_sizes_of_the_files_are_read_from_the_files(unpack: Unpack) -> None:
    root, written = unpack("main")
    wanted = java_settings(written["config"])
    found = settings_of(root)
    for name in ("segment_bytes", "queue_file_bytes", "index_slots", "index_entries"):
        assert getattr(found, name) == getattr(wanted, name)
    index = next((root / "index").iterdir())
    shutil.rmtree(root / "index")
    assert settings_of(root).index_slots == StoreSettings().index_slots
    (root / "index").mkdir()
    index.write_bytes(struct.pack(">qqqqii", 0, 0, 77, 0, 9, 9).ljust(1_064, b"\1"))
    with pytest.raises(StoreError, match="--set maxHashSlotNum=N"):
        settings_of(root)


def test_progress_is_reported(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.store.log.walk.PROGRESS_BYTES", 10_000)
    store = open_store()
    fill(store, 100)
    store.close()
    told: list[tuple[int, int, int]] = []
    made = rebuild(store.root, SMALL, lambda *steps: told.append(steps))
    assert len(told) >= 2
    assert (made.queues, made.entries, made.keys) == (6, 100, 200)
    assert isinstance(store.state.index, Index)
