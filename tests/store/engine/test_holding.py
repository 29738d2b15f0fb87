"""Files of the log stay until a group has read their messages."""

import logging

import pytest
from aerobee.store.base.retention import HOUR_MS, Hold, TopicRule
from aerobee.store.engine.store import MessageStore

from ...clocks import Clock
from ..conftest import OpenStore, put
from .test_cleaning import SMALL, Disk, age, clean, fill, full, log_files, sync

__all__ = ["full"]

FILE_BYTES = SMALL.segment_bytes


@pytest.fixture
def store(full: Disk, open_store: OpenStore) -> MessageStore:
    return open_store(settings=SMALL)


def hold(store: MessageStore, offsets: dict[tuple[str, int], int]) -> None:
    """Group g has these offsets."""

    def hold_of(topic: str, queue_id: int) -> Hold | None:
        offset = offsets.get((topic, queue_id))
        return None if offset is None else Hold("g", offset)

    store.wait_for(hold_of)


@pytest.mark.parametrize(("offset", "gone"), [(-1, 0), (0, 0), (3, 0), (4, 1), (9, 2), (99, 6)])
def test_files_go_up_to_the_one_that_a_group_has_to_read(
    store: MessageStore, clock: Clock, offset: int, gone: int
) -> None:
    fill(store, 7)
    age(store, clock, 6)
    hold(store, {("T", 0): offset})
    clean(store, by_hand=True)
    assert store.log_start == gone * FILE_BYTES
    assert store.min_offset("T", 0) == 4 * gone


def test_a_group_that_reads_on_lets_files_go_and_another_queue_holds_then(
    store: MessageStore, clock: Clock
) -> None:
    for topic in "TUTUTU":
        fill(store, 1, topic)
    age(store, clock, 5)
    offsets = {("T", 0): 0, ("U", 0): 4}
    hold(store, offsets)
    for offset, start in ((0, 0), (1, 0), (4, 2), (8, 3)):
        offsets["T", 0] = offset
        clean(store, by_hand=True)
        assert store.log_start == start * FILE_BYTES
    del offsets["U", 0]  # the topic is no longer held
    clean(store, by_hand=True)
    assert store.log_start == 4 * FILE_BYTES


def test_an_offset_before_the_least_one_holds_what_is_there(
    store: MessageStore, clock: Clock
) -> None:
    fill(store, 7)
    age(store, clock, 2)
    clean(store, by_hand=True)
    assert store.min_offset("T", 0) == 8
    hold(store, {("T", 0): 3})
    age(store, clock, 4)
    clean(store, by_hand=True)
    assert (store.log_start, store.min_offset("T", 0)) == (2 * FILE_BYTES, 8)


def test_a_full_disk_takes_nothing_that_is_held_and_refuses_messages(
    store: MessageStore, clock: Clock, full: Disk
) -> None:
    fill(store, 7)
    offsets = {("T", 0): 5}
    hold(store, offsets)
    full.percent = 95
    clean(store)
    assert store.log_start == FILE_BYTES
    assert store.pause_reason is not None
    offsets["T", 0] = 12
    clean(store)
    assert store.log_start == 3 * FILE_BYTES


def test_a_batch_queue_is_held(store: MessageStore, clock: Clock) -> None:
    store.state.batch_topics = frozenset({"B"})
    fill(store, 1)
    put(store, "B", body=bytes(800))
    assert ("B", 0) in store.state.queues.batch
    fill(store, 3)
    age(store, clock, 4)
    offsets = {("B", 0): 0}
    hold(store, offsets)
    clean(store, by_hand=True)
    assert store.log_start == FILE_BYTES
    offsets["B", 0] = 1
    clean(store, by_hand=True)
    assert store.log_start > FILE_BYTES


def test_the_queue_of_a_deleted_topic_holds_nothing(store: MessageStore, clock: Clock) -> None:
    fill(store, 7)
    age(store, clock, 6)
    hold(store, {("T", 0): 0})
    clean(store, by_hand=True)
    assert store.log_start == 0
    store.delete_topic("T")
    clean(store, by_hand=True)
    assert store.log_start == 6 * FILE_BYTES


@pytest.mark.parametrize("rule", [TopicRule(keep_ms=HOUR_MS), TopicRule(keep_bytes=1)])
def test_a_shorter_retention_passes_no_offset_of_a_group(
    store: MessageStore, clock: Clock, rule: TopicRule
) -> None:
    fill(store, 3)
    clock.ms += 2 * HOUR_MS
    put(store)
    sync(store)
    store.state.topic_rules = {"T": rule}
    offsets = {("T", 0): -1}
    hold(store, offsets)
    for offset, least in ((-1, 0), (5, 5), (20, 12)):
        offsets["T", 0] = offset
        clean(store, by_hand=True)
        assert store.min_offset("T", 0) == least


def test_nothing_is_looked_up_while_no_file_would_go(store: MessageStore, clock: Clock) -> None:
    fill(store, 3)
    asked = []
    store.wait_for(lambda topic, queue_id: asked.append(topic))
    clean(store, by_hand=True)
    assert not asked
    age(store, clock, 2)
    clean(store, by_hand=True)
    assert asked


def test_a_search_pauses_often_and_ends_at_the_queue_that_was_found_before(
    store: MessageStore, clock: Clock
) -> None:
    fill(store, 2)
    for number in range(1, 300):
        put(store, queue_id=number)
    fill(store, 1)
    age(store, clock, 2)
    asked: list[int] = []
    offsets = {("T", 299): 0}

    def hold_of(topic: str, queue_id: int) -> Hold | None:
        asked.append(queue_id)
        offset = offsets.get((topic, queue_id))
        return None if offset is None else Hold("g", offset)

    store.wait_for(hold_of)
    between, most = 0, 0
    for _ in store.cleaner.clean(by_hand=True):
        between, most = len(asked), max(most, len(asked) - between)
    assert 250 < len(asked) <= 300
    assert most <= 64
    assert store.log_start == 2 * FILE_BYTES
    age(store, clock, 20)
    clean(store, by_hand=True)
    start = store.log_start
    asked.clear()
    clean(store, by_hand=True)
    assert (asked, store.log_start) == ([299], start)


def test_the_log_tells_once_who_holds_the_oldest_file(
    store: MessageStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 4)
    age(store, clock, 3, hours=80)
    offsets = {("T", 0): 5}
    hold(store, offsets)
    with caplog.at_level(logging.ERROR):
        clean(store, by_hand=True)
        clean(store, by_hand=True)
    (said,) = caplog.messages
    place, _, _ = store.state.queues.simple["T", 0].entry(5)
    assert said.startswith(f"{log_files(store)[0].name} would go now and stays, because ")
    for part in (
        "retainUntilConsumedBy names group g: its offset in queue 0 of topic T is 5, and",
        f"{store.log_end - place} bytes of the log follow; start the group",
        "aerobee groups delete g",
    ):
        assert part in said
    held = store.cleaner.held_files
    assert held is not None
    assert held.size == sum(each.stat().st_blocks * 512 for each in log_files(store)[:2])
    assert abs(held.since_ms - (clock.ms - 8 * HOUR_MS)) < 1_000
    offsets["T", 0] = 99
    clean(store, by_hand=True)
    assert store.cleaner.held_files is None
