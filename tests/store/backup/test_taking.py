"""Backups: whole, incremental, resumed, taken while the store is written, and pruned."""

from pathlib import Path

import pytest
from aerobee.protocol.message.record import decode_record
from aerobee.store.backup import manifest, taking
from aerobee.store.backup.restoring import check, restore
from aerobee.store.backup.targets import FolderTarget
from aerobee.store.base.errors import StoreError
from aerobee.store.engine.store import MessageStore
from aerobee.store.inspect.check import check as check_store

from ...clocks import Clock
from ..conftest import OpenStore, put


def backup(root: Path, target: FolderTarget, clock: Clock) -> taking.Taken:
    clock.ms += 1000
    return taking.take(root, target, version="0", now_ms=clock)


def bodies(store: MessageStore, topic: str = "T") -> list[bytes]:
    found = [store.message_at(place) for place, _, _ in entries(store, topic)]
    return [decode_record(record).body for record in found if record is not None]


def entries(store: MessageStore, topic: str) -> list[tuple[int, int, int]]:
    queue = store.state.queues.simple[(topic, 0)]
    return [queue.entry(offset) for offset in range(queue.first_offset, queue.next)]


def test_an_open_store_is_backed_up_and_restored_with_all_it_has_written(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    for number in range(400):
        put(store, body=b"%04d" % number + bytes(500), properties=b"KEYS\x01k%d\x02" % number)
    store.write_staged()
    store.index_pending()
    (store.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{"0":7}}}')
    target = FolderTarget(tmp_path / "target")
    taken = backup(store.root, target, clock)
    for _ in range(10):
        put(store, body=b"after the backup")
    store.write_staged()
    restored = tmp_path / "restored"
    restore(target, restored)
    assert not check_store(restored).is_damaged
    copy = open_store(root=restored)
    assert bodies(copy) == [b"%04d" % number + bytes(500) for number in range(400)]
    assert copy.query("T", "k77", 0, 1 << 50)
    assert "T@G" in (restored / "config" / "consumerOffset.json").read_text()
    assert taken.new_bytes <= taken.read_bytes


def test_a_second_backup_reads_no_full_file_again_and_writes_only_what_is_new(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    for number in range(1000):
        put(store, body=b"%04d" % number * 125)
    store.write_staged()
    target = FolderTarget(tmp_path / "target")
    first = backup(store.root, target, clock)
    put(store, body=b"one more")
    store.write_staged()
    second = backup(store.root, target, clock)
    assert len(store.state.log.segments.items) > 5
    assert second.data_bytes > first.data_bytes
    assert second.read_bytes < first.read_bytes / 2
    assert 0 < second.new_bytes < first.new_bytes / 2
    assert restore(target, tmp_path / "restored").name == second.name


def test_an_interrupted_backup_goes_on_and_writes_nothing_twice(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    for number in range(600):
        put(store, body=b"%04d" % number * 125)
    store.write_staged()

    class Breaking(FolderTarget):
        left = 3

        def write(self, name: str, data: bytes | memoryview) -> None:
            self.left -= 1
            if self.left < 0:
                raise StoreError("the disk went")
            super().write(name, data)

    with pytest.raises(StoreError, match="the disk went"):
        backup(store.root, Breaking(tmp_path / "target"), clock)
    target = FolderTarget(tmp_path / "target")
    assert manifest.names(target) == []
    there = target.sizes(manifest.PIECES)
    assert len(there) == 3
    stamps = {name: (tmp_path / "target" / name).stat().st_ino for name in there}
    backup(store.root, target, clock)
    assert stamps == {name: (tmp_path / "target" / name).stat().st_ino for name in there}
    check(target, manifest.names(target)[0])


def test_a_piece_that_was_cut_off_is_written_again(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    put(store, body=b"x" * 1000)
    store.write_staged()
    target = FolderTarget(tmp_path / "target")
    backup(store.root, target, clock)
    for name in target.sizes(manifest.PIECES):
        (tmp_path / "target" / name).write_bytes(b"")
    taken = backup(store.root, target, clock)
    check(target, taken.name)


def test_only_the_newest_backups_and_their_pieces_are_kept(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    target = FolderTarget(tmp_path / "target")
    for number in range(4):
        put(store, body=b"%d" % number * 1000)
        store.write_staged()
        backup(store.root, target, clock)
    before = len(target.sizes(manifest.PIECES))
    assert taking.forget_old(target, 2) == 2
    names = manifest.names(target)
    assert len(names) == 2
    assert len(target.sizes(manifest.PIECES)) < before
    for name in names:
        check(target, name)
    assert taking.forget_old(target, 2) == 0


def test_a_target_has_the_backups_of_one_store(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    target = FolderTarget(tmp_path / "target")
    backup(open_store(root=tmp_path / "a").root, target, clock)
    with pytest.raises(StoreError, match="give each store a place of its own"):
        backup(open_store(root=tmp_path / "b").root, target, clock)


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(StoreError, match="is no store: it has no folder commitlog"):
        backup(tmp_path, FolderTarget(tmp_path / "target"), clock)


def test_no_reading_is_faster_than_the_pace(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    put(store, body=b"x" * 1000)
    store.write_staged()
    read: list[int] = []
    taken = taking.take(
        store.root, FolderTarget(tmp_path / "t"), version="0", now_ms=clock, pace=read.append
    )
    assert 1000 < sum(read) <= taken.read_bytes


def test_a_log_in_another_folder_is_taken_and_comes_back_below_the_store(
    tmp_path: Path, open_store: OpenStore, clock: Clock
) -> None:
    from dataclasses import replace

    from ..conftest import SMALL

    elsewhere = tmp_path / "elsewhere" / "log"
    store = open_store(settings=replace(SMALL, commit_log_dir=elsewhere))
    put(store, body=b"far away")
    store.write_staged()
    target = FolderTarget(tmp_path / "target")
    taking.take(store.root, target, version="0", now_ms=clock, log_folder=elsewhere)
    restore(target, tmp_path / "restored")
    assert bodies(open_store(root=tmp_path / "restored")) == [b"far away"]
