"""The state of a controller on its disk: every crash leaves all acknowledged events."""

from pathlib import Path

import pytest
from aerobee.controller import journal as journals
from aerobee.controller.journal import JOURNAL, SNAPSHOT, FileEngine
from aerobee.controller.replicas import (
    Event,
    IdApplied,
    MasterElected,
    ReplicaGroup,
    SyncSetChanged,
    apply,
)
from aerobee.store.base.errors import DamagedStore, StoreError, StoreInUse
from aerobee.store.files import disk

EVENTS: list[Event] = [
    IdApplied("a", "c", 1, "h:1", "h:1;1"),
    IdApplied("a", "c", 2, "h:2", "h:2;2"),
    MasterElected("a", 1),
    SyncSetChanged("a", [1, 2]),
    MasterElected("a", 2),
]


def opened(folder: Path) -> FileEngine:
    found = FileEngine(folder)
    found.open()
    return found


def states() -> list[dict[str, ReplicaGroup]]:
    """The groups after each number of events."""
    found: list[dict[str, ReplicaGroup]] = []
    for count in range(len(EVENTS) + 1):
        groups: dict[str, ReplicaGroup] = {}
        for event in EVENTS[:count]:
            apply(groups, event)
        found.append(groups)
    return found


async def test_written_events_survive_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for event in EVENTS:
        await journal.store((event,))
    await journal.close()
    again = opened(tmp_path)
    assert again.groups == states()[-1] == journal.groups
    await again.close()


async def test_a_line_torn_at_any_byte_is_cut_off_and_the_lines_before_it_stay(
    tmp_path: Path,
) -> None:
    journal = opened(tmp_path)
    ends = [0]
    for event in EVENTS:
        await journal.store((event,))
        ends.append((tmp_path / JOURNAL).stat().st_size)
    await journal.close()
    whole = (tmp_path / JOURNAL).read_bytes()
    for size in range(len(whole) + 1):
        (tmp_path / JOURNAL).write_bytes(whole[:size])
        again = opened(tmp_path)
        count = sum(end <= size for end in ends) - 1
        assert again.groups == states()[count]
        await again.store(tuple(EVENTS[count:]))
        await again.close()
        third = opened(tmp_path)
        assert third.groups == states()[-1]
        await third.close()


async def test_damage_before_whole_lines_stops_the_start(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.store(tuple(EVENTS))
    await journal.close()
    whole = bytearray((tmp_path / JOURNAL).read_bytes())
    last = whole[:-1].rindex(b"\n") + 1
    for at in range(last - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 0x04
        (tmp_path / JOURNAL).write_bytes(damaged)
        with pytest.raises(DamagedStore, match=r"is damaged at byte \d+, and whole lines follow"):
            opened(tmp_path)
    (tmp_path / JOURNAL).write_bytes(whole)
    await opened(tmp_path).close()


async def test_missing_events_stop_the_start(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for event in EVENTS:
        await journal.store((event,))
    await journal.close()
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(DamagedStore, match="has event 4 after 2: events between them are missing"):
        opened(tmp_path)


async def test_a_snapshot_replaces_a_long_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "JOURNAL_BYTES_MAX", 150)
    before: list[bytes] = []
    write_snapshot = FileEngine.write_snapshot

    def noted(engine: FileEngine) -> None:
        before.append((tmp_path / JOURNAL).read_bytes())
        write_snapshot(engine)

    monkeypatch.setattr(FileEngine, "write_snapshot", noted)
    journal = opened(tmp_path)
    for event in EVENTS:
        await journal.store((event,))
    await journal.close()
    assert (tmp_path / SNAPSHOT).exists()
    again = opened(tmp_path)
    assert again.groups == states()[-1]
    await again.close()
    # A crash between the snapshot and the truncation of the journal: events are not applied twice.
    rest = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(before[-1] + rest)
    third = opened(tmp_path)
    assert third.groups == states()[-1]
    await third.close()


async def test_a_damaged_snapshot_and_one_of_another_version_stop_the_start(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    await journal.store(tuple(EVENTS))
    journal.write_snapshot()
    await journal.close()
    whole = (tmp_path / SNAPSHOT).read_bytes()
    for damaged in (b"", whole.replace(b'"c"', b'"d"')):
        (tmp_path / SNAPSHOT).write_bytes(damaged)
        with pytest.raises(DamagedStore, match="its checksum is wrong"):
            opened(tmp_path)
    _, _, text = whole.partition(b" ")
    text = text.rstrip(b"\n").replace(b'"version":1', b'"version":9')
    (tmp_path / SNAPSHOT).write_bytes(journals._sealed(text))
    with pytest.raises(DamagedStore, match="has version 9, this aerobee reads 1"):
        opened(tmp_path)
    (tmp_path / SNAPSHOT).write_bytes(whole)
    await opened(tmp_path).close()


async def test_a_second_controller_cannot_use_the_folder(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(StoreInUse):
        opened(tmp_path)
    await journal.close()
    await opened(tmp_path).close()


async def test_a_failed_write_leaves_no_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    await journal.store((EVENTS[0],))
    sync = disk.current.sync_data

    monkeypatch.setattr(disk.current, "sync_data", fails)
    with pytest.raises(StoreError, match="can't write"):
        journal.write((EVENTS[1],))
    monkeypatch.setattr(disk.current, "sync_data", sync)
    await journal.store((EVENTS[1], EVENTS[2]))
    await journal.close()
    again = opened(tmp_path)
    assert again.groups == states()[3]
    await again.close()


def fails(*_: object) -> None:
    raise OSError(5, "Input/output error")


async def test_after_a_write_that_cannot_be_taken_back_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    await journal.store((EVENTS[0],))
    before = (tmp_path / JOURNAL).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(disk.current, "sync_data", fails)
        patch.setattr(disk.current, "truncate", fails)
        with pytest.raises(StoreError, match="a change that failed may be in it"):
            journal.write((EVENTS[1], EVENTS[2]))
    left = (tmp_path / JOURNAL).read_bytes()
    assert left.startswith(before)
    assert len(left) > len(before)
    with pytest.raises(StoreError, match="until the disk is in order"):
        journal.write((EVENTS[3],))
    await journal.close()
    assert (tmp_path / JOURNAL).read_bytes() == left


async def test_after_a_snapshot_whose_cut_is_not_synced_events_begin_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    await journal.store((EVENTS[0], EVENTS[1]))
    cut = disk.current.truncate

    def cut_only(fd: int, size: int) -> None:
        cut(fd, size)
        monkeypatch.setattr(disk.current, "sync", fails)

    with monkeypatch.context() as patch:
        patch.setattr(disk.current, "sync", disk.current.sync)
        patch.setattr(disk.current, "truncate", cut_only)
        with pytest.raises(StoreError, match="can't cut"):
            journal.write_snapshot()
    monkeypatch.undo()
    await journal.store((EVENTS[2],))
    await journal.close()
    again = opened(tmp_path)
    assert again.groups == states()[3]
    await again.close()
