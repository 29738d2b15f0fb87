"""The state of a controller on its disk: every crash leaves all acknowledged events."""

from pathlib import Path

import pytest
from aerobee.controller import journal as journals
from aerobee.controller.journal import JOURNAL, SNAPSHOT, FileJournal
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


def opened(folder: Path) -> FileJournal:
    found = FileJournal(folder)
    found.open()
    return found


def put(journal: FileJournal, *events: Event) -> None:
    journal.write(events)
    journal.apply(events)


def states() -> list[dict[str, ReplicaGroup]]:
    """The groups after each number of events."""
    found: list[dict[str, ReplicaGroup]] = []
    for count in range(len(EVENTS) + 1):
        groups: dict[str, ReplicaGroup] = {}
        for event in EVENTS[:count]:
            apply(groups, event)
        found.append(groups)
    return found


def test_written_events_survive_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for event in EVENTS:
        put(journal, event)
    journal.close()
    again = opened(tmp_path)
    assert again.groups == states()[-1] == journal.groups
    again.close()


def test_a_line_torn_at_any_byte_is_cut_off_and_the_lines_before_it_stay(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    ends = [0]
    for event in EVENTS:
        put(journal, event)
        ends.append((tmp_path / JOURNAL).stat().st_size)
    journal.close()
    whole = (tmp_path / JOURNAL).read_bytes()
    for size in range(len(whole) + 1):
        (tmp_path / JOURNAL).write_bytes(whole[:size])
        again = opened(tmp_path)
        count = sum(end <= size for end in ends) - 1
        assert again.groups == states()[count]
        put(again, *EVENTS[count:])
        again.close()
        third = opened(tmp_path)
        assert third.groups == states()[-1]
        third.close()


def test_damage_before_whole_lines_stops_the_start(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, *EVENTS)
    journal.close()
    whole = bytearray((tmp_path / JOURNAL).read_bytes())
    last = whole[:-1].rindex(b"\n") + 1
    for at in range(last - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 0x04
        (tmp_path / JOURNAL).write_bytes(damaged)
        with pytest.raises(DamagedStore, match=r"is damaged at byte \d+, and whole lines follow"):
            opened(tmp_path)
    (tmp_path / JOURNAL).write_bytes(whole)
    opened(tmp_path).close()


def test_missing_events_stop_the_start(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for event in EVENTS:
        put(journal, event)
    journal.close()
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(DamagedStore, match="has event 4 after 2: events between them are missing"):
        opened(tmp_path)


def test_a_snapshot_replaces_a_long_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "JOURNAL_BYTES_MAX", 150)
    journal = opened(tmp_path)
    for event in EVENTS:
        put(journal, event)
        if journal.is_long:
            before = (tmp_path / JOURNAL).read_bytes()
            journal.write_snapshot()
    journal.close()
    assert (tmp_path / SNAPSHOT).exists()
    again = opened(tmp_path)
    assert again.groups == states()[-1]
    again.close()
    # A crash between the snapshot and the truncation of the journal: events are not applied twice.
    rest = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(before + rest)
    third = opened(tmp_path)
    assert third.groups == states()[-1]
    third.close()


def test_a_damaged_snapshot_and_one_of_another_version_stop_the_start(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    put(journal, *EVENTS)
    journal.write_snapshot()
    journal.close()
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
    opened(tmp_path).close()


def test_a_second_controller_cannot_use_the_folder(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(StoreInUse):
        opened(tmp_path)
    journal.close()
    opened(tmp_path).close()


def test_a_failed_write_leaves_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path)
    put(journal, EVENTS[0])
    sync = disk.current.sync_data

    monkeypatch.setattr(disk.current, "sync_data", fails)
    with pytest.raises(StoreError, match="can't write"):
        journal.write((EVENTS[1],))
    monkeypatch.setattr(disk.current, "sync_data", sync)
    put(journal, EVENTS[1], EVENTS[2])
    journal.close()
    again = opened(tmp_path)
    assert again.groups == states()[3]
    again.close()


def fails(*_: object) -> None:
    raise OSError(5, "Input/output error")


def test_after_a_write_that_cannot_be_taken_back_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    put(journal, EVENTS[0])
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
    journal.close()
    assert (tmp_path / JOURNAL).read_bytes() == left


def test_after_a_snapshot_whose_cut_is_not_synced_events_begin_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    put(journal, EVENTS[0], EVENTS[1])
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
    put(journal, EVENTS[2])
    journal.close()
    again = opened(tmp_path)
    assert again.groups == states()[3]
    again.close()
