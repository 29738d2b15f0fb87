"""Restores: up to a moment, resumed, and refused where a backup is damaged."""

from pathlib import Path

import pytest
from aerobee.store.backup import manifest, taking
from aerobee.store.backup.restoring import check, restore
from aerobee.store.backup.targets import FolderTarget
from aerobee.store.base.errors import DamagedStore, StoreError
from aerobee.store.inspect.check import check as check_store

from ...clocks import Clock
from ..conftest import SMALL, OpenStore, put
from .test_taking import backup, bodies


@pytest.fixture
def target(tmp_path: Path) -> FolderTarget:
    return FolderTarget(tmp_path / "target")


@pytest.fixture
def root(open_store: OpenStore) -> Path:
    """A store in use that has 600 messages in several files."""
    store = open_store()
    for number in range(600):
        put(store, body=b"%04d" % number * 125)
    store.write_staged()
    return store.root


def test_messages_up_to_a_moment_come_back_with_the_offsets_from_before_it(
    tmp_path: Path, open_store: OpenStore, clock: Clock, target: FolderTarget
) -> None:
    store = open_store()
    offsets = store.root / "config" / "consumerOffset.json"
    for number in range(600):
        clock.ms += 10
        put(store, body=b"%04d" % number * 125)
        if number == 100:
            moment = clock.ms + 3000
            store.write_staged()
            store.index_pending()
            offsets.write_text('{"offsetTable":{"T@G":{"0":50}}}')
            backup(store.root, target, clock)
    store.write_staged()
    offsets.write_text('{"offsetTable":{"T@G":{"0":599}}}')
    (store.root / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}')
    backup(store.root, target, clock)
    stored = [store.store_ms_at("T", 0, number) for number in range(600)]
    expected = sum(ms <= moment for ms in stored)
    assert 101 < expected < 599

    done = restore(target, tmp_path / "restored", until_ms=moment)
    assert done.cut_at > 0
    assert not check_store(tmp_path / "restored").is_damaged
    restored = open_store(root=tmp_path / "restored")
    assert bodies(restored) == [b"%04d" % number * 125 for number in range(expected)]
    assert restored.log_end == done.cut_at
    assert '"0":50' in (tmp_path / "restored" / "config" / "consumerOffset.json").read_text()
    assert "T" in (tmp_path / "restored" / "config" / "topics.json").read_text()
    put(restored, body=b"goes on")
    restored.close()
    assert not check_store(tmp_path / "restored").is_damaged


def test_a_moment_outside_of_the_backups_is_refused(
    tmp_path: Path, root: Path, clock: Clock, target: FolderTarget
) -> None:
    early = clock.ms
    backup(root, target, clock)
    for moment in (early, clock.ms + 1):
        with pytest.raises(StoreError, match="--until needs a backup from before that time"):
            restore(target, tmp_path / "restored", until_ms=moment)
    assert not (tmp_path / "restored").exists()


def test_an_interrupted_restore_is_not_opened_goes_on_and_fetches_nothing_twice(
    tmp_path: Path, root: Path, open_store: OpenStore, clock: Clock, target: FolderTarget
) -> None:
    backup(root, target, clock)
    reads: list[str] = []

    class Breaking(FolderTarget):
        def read(self, name: str) -> bytes | None:
            if len(reads) == 5:
                raise StoreError("the network went")
            reads.append(name)
            return super().read(name)

    folder = tmp_path / "restored"
    with pytest.raises(StoreError, match="the network went"):
        restore(Breaking(tmp_path / "target"), folder)
    with pytest.raises(StoreError, match="restore has not ended"):
        open_store(root=folder)
    before = set(reads)

    class Noting(FolderTarget):
        def read(self, name: str) -> bytes | None:
            reads.append(name)
            return super().read(name)

    reads.clear()
    restore(Noting(tmp_path / "target"), folder)
    assert not {name for name in before if name.startswith("pieces/")} & set(reads)
    assert len(bodies(open_store(root=folder))) == 600


def test_another_restore_is_not_mixed_with_one_that_has_begun(
    tmp_path: Path, root: Path, clock: Clock, target: FolderTarget
) -> None:
    backup(root, target, clock)
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored" / "restoring.json").write_text('{"backup": "other", "until": null}')
    with pytest.raises(StoreError, match="the beginning of another restore"):
        restore(target, tmp_path / "restored")


def test_a_folder_with_something_else_in_it_is_refused(
    tmp_path: Path, root: Path, clock: Clock, target: FolderTarget
) -> None:
    backup(root, target, clock)
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored" / "mine").write_text("mine")
    with pytest.raises(StoreError, match="is not empty"):
        restore(target, tmp_path / "restored")


@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_a_damaged_piece_is_refused_with_its_place_and_its_file(
    tmp_path: Path, root: Path, clock: Clock, target: FolderTarget, harm: str
) -> None:
    taken = backup(root, target, clock)
    file = next(
        file for file in manifest.load(target, taken.name).files if "commitlog" in file.path
    )
    path = tmp_path / "target" / file.pieces[0].name
    if harm == "changed":
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    else:
        path.unlink()
    for work in (check, lambda at, name: restore(at, tmp_path / "restored", name=name)):
        with pytest.raises(DamagedStore, match=f"{path} .*it is a part of {file.path}"):
            work(target, taken.name)


def test_a_damaged_list_is_refused(
    root: Path, tmp_path: Path, clock: Clock, target: FolderTarget
) -> None:
    path = tmp_path / "target" / backup(root, target, clock).name
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(DamagedStore, match=f"{path} is damaged"):
        restore(target, tmp_path / "restored")


def test_an_older_backup_is_chosen_by_a_part_of_its_name(
    tmp_path: Path, open_store: OpenStore, clock: Clock, target: FolderTarget
) -> None:
    store = open_store()
    names = []
    for body in (b"first", b"second"):
        put(store, body=body)
        store.write_staged()
        names.append(backup(store.root, target, clock).name)
    restore(target, tmp_path / "restored", name=manifest.label(names[0]))
    assert bodies(open_store(root=tmp_path / "restored")) == [b"first"]
    with pytest.raises(StoreError, match="0 backups have nothing in their name"):
        restore(target, tmp_path / "other", name="nothing")


def test_a_target_without_backups_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data").touch()
    for name, why in {
        "nothing": "it does not exist",
        "file": "it is no folder",
        "empty": f"nothing below {tmp_path}/empty/backups is the list of one",
        "other": f"nothing below {tmp_path}/other/backups is the list of one",
    }.items():
        words = f"{tmp_path}/{name} has no backup: {why}; give the TARGET that `aerobee backup`"
        with pytest.raises(StoreError, match=words):
            restore(FolderTarget(tmp_path / name), tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_list_that_names_a_place_outside_of_the_store_is_refused(
    tmp_path: Path, target: FolderTarget
) -> None:
    bad = manifest.Backup("s", 1, 2, "0", [manifest.BackedUp("../out", 1, [])])
    target.write(*bad.encode())
    with pytest.raises(StoreError, match="no place in a store"):
        restore(target, tmp_path / "restored")
    assert not (tmp_path / "out").exists()


def test_a_store_that_deleted_its_oldest_files_comes_back_as_it_was(
    tmp_path: Path, open_store: OpenStore, clock: Clock, target: FolderTarget
) -> None:
    store = open_store(settings=SMALL)
    for number in range(600):
        put(store, body=b"%04d" % number * 125)
    store.sync()
    clock.ms += 1 << 45
    for step in store.cleaner.clean(by_hand=True):
        if step.work is not None:
            step.work()
    first = store.min_offset("T", 0)
    assert first > 0
    taking.take(store.root, target, version="0", now_ms=clock)
    restore(target, tmp_path / "restored")
    restored = open_store(root=tmp_path / "restored")
    assert (restored.min_offset("T", 0), restored.max_offset("T", 0)) == (first, 600)
    assert restored.log_start == store.log_start
