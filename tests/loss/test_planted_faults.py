"""Faults put into the store on purpose: the checks for loss must find each of them.

Without the fault the same workloads have none, so it is the fault that is found.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.store.engine import recovery
from aerobee.store.engine.sync import SyncPlan
from aerobee.store.files import disk, json_file
from aerobee.store.files.segment import Segment
from aerobee.store.queues.consume_queue import ConsumeQueue

from .explore import explore
from .workload import Run

Patch = pytest.MonkeyPatch


def acknowledge_before_the_sync(patch: Patch) -> None:
    """Answers go out when the sync begins, not when it is through."""
    patch.setattr(SyncPlan, "run", lambda plan: None)


def leave_the_tail_as_it_is(patch: Patch) -> None:
    """Let recovery not zero the log behind the end that it found."""
    patch.setattr(Segment, "zero", lambda segment, at: False)


def dispatch_before_the_sync(patch: Patch) -> None:
    """A message can be read as soon as it is written."""
    patch.setattr(ConsumeQueue, "readable_end", lambda queue, log_end: queue.next)


def write_json_in_place(patch: Patch) -> None:
    """The new text is written over the old one, and there is no .bak."""

    def save(path: Path, text: bytes | str) -> None:
        data = text.encode() if isinstance(text, str) else text
        disk.current.make_folders(path.parent)
        fd = disk.current.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        disk.current.pwrite(fd, data, 0)
        disk.current.sync(fd)
        disk.current.close(fd)

    patch.setattr(json_file, "save", save)


def repeat_a_sync_that_failed(patch: Patch) -> None:
    """The second try succeeds, because the system has given up on the pages of the first."""

    def again(run: Run, wrong: OSError, plan: SyncPlan) -> None:
        run.disk.fail = None
        plan.run()
        run.store.synced(plan)
        run.released()

    patch.setattr(Run, "on_failed_sync", again)


def trust_what_the_system_has_after_a_sync_that_failed(patch: Patch) -> None:
    """The restart reads what was written, and takes it for being on the disk."""
    patch.setattr(recovery, "_write_again", lambda parts, synced_end: None)


def forget_that_a_topic_was_deleted(patch: Patch) -> None:
    """Recovery makes the queues of all messages in the log."""
    patch.setattr("aerobee.store.queues.deleted.Deleted.note", lambda *_: None)


FAULTS: list[tuple[Callable[[Patch], None], tuple[str, ...], bool, str]] = [
    (acknowledge_before_the_sync, ("send", "sync"), True, "is lost"),
    (leave_the_tail_as_it_is, ("send long", "send", "two in a turn"), False, "came back"),
    (dispatch_before_the_sync, ("send", "commit"), True, "first message"),
    (write_json_in_place, ("send", "commit", "commit"), True, "went back|DamagedStore"),
    (repeat_a_sync_that_failed, ("send", "sync of the log fails"), True, "is lost"),
    (
        trust_what_the_system_has_after_a_sync_that_failed,
        ("send", "sync of the log fails"),
        True,
        "is lost|first message",
    ),
    (forget_that_a_topic_was_deleted, ("send", "delete"), True, "came back"),
]


@pytest.mark.parametrize(
    ("plant", "names", "sync_flush", "text"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)
def test_a_planted_fault_is_found(
    plant: Callable[[Patch], None],
    names: tuple[str, ...],
    sync_flush: bool,
    text: str,
    monkeypatch: Patch,
    quiet: None,
) -> None:
    # A tail needs one sector of many to be lost.
    most = 60 if plant is leave_the_tail_as_it_is else 8
    sound = explore(names, sync_flush=sync_flush, most=most, every=1)
    assert not sound.faults, list(sound.faults)[:3]
    with monkeypatch.context() as patch:
        plant(patch)
        found = explore(names, sync_flush=sync_flush, most=most, every=1)
    assert found.faults
    assert re.search(text, "\n".join(found.faults)), list(found.faults)[:5]
