"""A plan syncs what it names, folders first, and lets errors out."""

import os
from pathlib import Path

import pytest
from aerobee.store.engine.sync import SyncPlan
from aerobee.store.files import disk
from aerobee.store.files.segment import Segment


def test_folders_come_before_files_and_the_log_before_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, queue = (
        Segment.create(tmp_path / name, 0, 100, reserve=100, writable=True)
        for name in ("log", "queue")
    )
    done: list[str] = []

    def noting(fd: int) -> None:
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(disk.current, "sync", noting)
    monkeypatch.setattr(disk.current, "sync_data", noting)
    SyncPlan(100, 1, segments=[log], folders=[tmp_path], queue_segments=[queue]).run()
    assert done == [tmp_path.name, "log", "queue"]


def test_an_error_of_the_disk_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Segment.create(tmp_path / "log", 0, 100, reserve=100, writable=True)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk.current, "sync_data", broken)
    with pytest.raises(OSError, match="Input/output error"):
        SyncPlan(100, 1, segments=[log]).run()
