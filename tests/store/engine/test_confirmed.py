"""In controller mode readers see the log up to confirmOffset, and offsets are given out once."""

from dataclasses import replace

import pytest
from aerobee.store.base import status
from aerobee.store.base.retention import Rules
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import checkpoint as checkpoints

from ...clocks import Clock
from ..conftest import SMALL, OpenStore, put

CONTROLLED = replace(SMALL, controller_mode=True)


def filled(open_store: OpenStore, settings: StoreSettings = CONTROLLED) -> tuple[MessageStore, int]:
    """A store with four messages, and where the third begins."""
    store = open_store(settings=settings)
    ends = [put(store, properties=b"KEYS\x01k\x02")[2] for _ in range(4)]
    store.write_staged()
    return store, ends[1]


def readable(store: MessageStore) -> list[int]:
    """By every way to read: how many messages come."""
    found = store.get("T", 0, 0, 32, 1 << 20)
    many = store.get_many("T", 0, 0, 32, 1 << 20)
    assert (found.max_offset, many.max_offset) == (found.count, many.count)
    return [
        found.count,
        many.count,
        store.max_offset("T", 0),
        len(store.query("T", "k", 0, 1 << 62)),
        len(store.entries("T", 0, 0, 32)),
    ]


def test_nothing_beyond_the_confirmed_end_is_readable(open_store: OpenStore) -> None:
    store, end = filled(open_store)
    assert readable(store) == [0] * 5
    assert store.get("T", 0, 0, 32, 1 << 20).status == status.NO_MESSAGE_IN_QUEUE
    assert store.confirm(end)
    assert readable(store) == [2] * 5
    assert store.message_at(end) is None
    assert store.message_at(end, all_written=True) is not None  # to end a transaction
    assert not store.confirm(end)
    assert store.confirm(1 << 62)
    assert readable(store) == [4] * 5
    assert store.message_at(end) is not None


def test_what_is_confirmed_stays_so(open_store: OpenStore) -> None:
    store, end = filled(open_store)
    store.confirm(end)
    assert not store.confirm(0)
    assert store.readable_end == end


def test_with_sync_flush_both_bounds_hold(open_store: OpenStore) -> None:
    store, end = filled(open_store, replace(CONTROLLED, sync_flush=True))
    store.confirm(store.log_end)
    assert store.readable_end == store.durable_end == 0
    store.sync()
    assert store.readable_end == store.log_end
    assert store.log_end > end


def test_without_a_controller_all_is_readable_at_once(open_store: OpenStore) -> None:
    store, _ = filled(open_store, SMALL)
    assert readable(store) == [4] * 5


@pytest.mark.parametrize("crash", [False, True])
def test_the_confirmed_end_is_the_fifth_number_of_the_checkpoint(
    open_store: OpenStore, crash: bool
) -> None:
    store, end = filled(open_store)
    store.confirm(end)
    if crash:
        store.save_checkpoint()
        store.abandon()
    else:
        store.close()
    assert checkpoints.load(store.root / "checkpoint").confirm_offset == end
    assert open_store(settings=CONTROLLED).readable_end == end


# Upstream 7689, 6609, 6703: RocketMQ gives these offsets to other messages after a restart.
@pytest.mark.parametrize("crash", [False, True])
def test_fault_10_5_offsets_behind_the_confirmed_end_are_given_out_once(
    open_store: OpenStore, crash: bool
) -> None:
    store, end = filled(open_store)
    store.confirm(end)
    store.save_checkpoint()
    store.abandon() if crash else store.close()
    again = open_store(settings=CONTROLLED)
    assert (again.max_offset("T", 0), again.next_offset("T", 0)) == (2, 4)
    assert put(again)[1] == 4


def test_the_first_epoch_begins_where_the_log_does(open_store: OpenStore) -> None:
    store, _ = filled(open_store, SMALL)
    store.close()
    again = open_store(settings=CONTROLLED)
    again.begin_epoch(3)
    assert [str(entry) for entry in again.epochs.entries] == ["3-0"]
    again.begin_epoch(4)
    assert [str(entry) for entry in again.epochs.entries] == ["3-0", f"4-{again.log_end}"]
    again.begin_epoch(4)
    assert len(again.epochs.entries) == 2


def test_an_epoch_behind_the_end_of_the_log_goes_at_the_start(open_store: OpenStore) -> None:
    """It is noted before its first message, which a power cut may take."""
    store, _ = filled(open_store)
    end = store.log_end
    store.epochs.append(1, 0)
    store.epochs.append(2, end + 1)
    store.close()
    store = open_store(settings=CONTROLLED)
    assert [str(entry) for entry in store.epochs.entries] == ["1-0"]
    store.epochs.append(2, end)
    store.close()
    assert open_store(settings=CONTROLLED).epochs.last_epoch == 2


def test_epochs_go_with_the_files_of_their_messages(open_store: OpenStore, clock: Clock) -> None:
    small = replace(CONTROLLED, segment_bytes=4096, rules=Rules(keep_ms=0))
    store = open_store(settings=small)
    for epoch in range(1, 9):
        store.begin_epoch(epoch)
        for _ in range(20):
            put(store)
        store.write_staged()
    store.sync()
    clock.ms *= 2
    for step in store.cleaner.clean(by_hand=True):
        if step.work is not None:
            step.work()
    first = store.epochs.entries[0]
    assert store.log_start > 0
    assert (store.epochs.end_of(first.epoch) or 0) >= store.log_start
    assert 1 < len(store.epochs.entries) < 8
    assert store.epochs.epoch_at(store.log_start) == first


@pytest.mark.parametrize(
    ("sync_flush", "crash", "is_whole"),
    [(False, False, True), (False, True, False), (True, True, True)],
)
def test_a_crash_may_have_taken_confirmed_messages_unless_each_was_synced(
    open_store: OpenStore, sync_flush: bool, crash: bool, is_whole: bool
) -> None:
    settings = replace(CONTROLLED, sync_flush=sync_flush)
    store, _ = filled(open_store, settings)
    assert store.is_whole
    store.abandon() if crash else store.close()
    assert open_store(settings=settings).is_whole == is_whole
