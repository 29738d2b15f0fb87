"""Topics that keep their messages shorter or longer than the store does."""

import pytest
from aerobee.store.base.retention import HOUR_MS, TopicRule
from aerobee.store.engine.store import MessageStore

from ...clocks import Clock
from ..conftest import OpenStore, put
from .test_cleaning import SMALL, age, clean, fill, log_files, sync

BODY_BYTES = 1000


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    return open_store(settings=SMALL)


def hourly(store: MessageStore, clock: Clock, count: int, topic: str = "T") -> None:
    """Messages of about a thousand bytes, one an hour."""
    for _ in range(count):
        clock.ms += HOUR_MS
        put(store, topic, body=bytes(BODY_BYTES - 100))
    sync(store)


def test_a_shorter_time_moves_the_least_offset_and_leaves_other_topics(
    store: MessageStore, clock: Clock
) -> None:
    hourly(store, clock, 20)
    hourly(store, clock, 1, "U")
    store.state.topic_rules = {"T": TopicRule(keep_ms=5 * HOUR_MS)}
    clean(store)
    # T's newest is an hour old; that of five hours ago is just young enough.
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (15, 20)
    assert store.min_offset("U", 0) == 0
    for hours, least in ((1, 16), (0, 16), (3, 19), (1, 20), (50, 20)):
        clock.ms += hours * HOUR_MS
        clean(store)
        assert store.min_offset("T", 0) == least
    hourly(store, clock, 1)
    clean(store)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (20, 21)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 100])
def test_a_time_is_found_between_any_two_messages(
    store: MessageStore, clock: Clock, count: int
) -> None:
    hourly(store, clock, count)
    for kept in range(count, -1, -1):
        store.state.topic_rules = {"T": TopicRule(keep_ms=kept * HOUR_MS - 1)}
        clean(store)
        assert store.min_offset("T", 0) == count - kept


def test_bytes_are_those_of_the_newest_messages_of_each_queue(
    store: MessageStore, clock: Clock
) -> None:
    for _ in range(10):
        put(store, queue_id=0, body=bytes(BODY_BYTES))
        put(store, queue_id=1, body=bytes(100))
    sync(store)
    size = store.state.queues.simple[("T", 0)].entry(0)[1]
    store.state.topic_rules = {"T": TopicRule(keep_bytes=3 * size + 1)}
    clean(store)
    assert (store.min_offset("T", 0), store.min_offset("T", 1)) == (7, 0)
    put(store, queue_id=0, body=bytes(BODY_BYTES))
    clean(store)
    assert store.min_offset("T", 0) == 8
    store.state.topic_rules = {"T": TopicRule(keep_bytes=1)}
    clean(store)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (10, 11)  # the newest stays


def test_a_sum_begins_again_where_the_log_was_cut(store: MessageStore) -> None:
    for _ in range(10):
        put(store, body=bytes(BODY_BYTES))
    sync(store)
    size = store.state.queues.simple[("T", 0)].entry(0)[1]
    store.state.topic_rules = {"T": TopicRule(keep_bytes=8 * size)}
    clean(store)
    assert store.min_offset("T", 0) == 2
    store.state.queues.simple[("T", 0)].cut(6)
    put(store, body=bytes(BODY_BYTES))
    clean(store)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (2, 7)


def test_a_longer_time_keeps_the_files_that_have_a_message_of_the_topic(
    store: MessageStore, clock: Clock
) -> None:
    fill(store, 3)
    put(store, "LONG", body=b"kept")
    fill(store, 6)
    age(store, clock, 8)
    store.state.topic_rules = {"LONG": TopicRule(keep_ms=200 * HOUR_MS)}
    clock.ms += 100 * HOUR_MS
    age(store, clock, 8)
    clean(store, by_hand=True)
    place, _, _ = store.state.queues.simple[("LONG", 0)].entry(0)
    assert store.log_start == place // 4096 * 4096 > 0
    assert store.min_offset("LONG", 0) == 0
    clock.ms += 101 * HOUR_MS
    age(store, clock, 8)
    clean(store, by_hand=True)
    assert store.log_start == 8 * 4096
    assert store.min_offset("LONG", 0) == store.max_offset("LONG", 0) == 1


def test_a_file_that_no_queue_needs_goes_before_the_stores_time(
    store: MessageStore, clock: Clock
) -> None:
    fill(store, 6)
    store.state.topic_rules = {"T": TopicRule(keep_ms=HOUR_MS)}
    clock.ms += 2 * HOUR_MS
    age(store, clock, 6, hours=2)
    put(store, "U")
    sync(store)
    clean(store, by_hand=False)
    assert store.log_start == 0  # it is not the hour
    clean(store, by_hand=True)
    assert len(log_files(store)) == 1
    assert store.min_offset("T", 0) == store.max_offset("T", 0)
    assert store.min_offset("U", 0) == 0


def test_a_message_of_a_topic_without_a_rule_keeps_its_file(
    store: MessageStore, clock: Clock
) -> None:
    fill(store, 2)
    put(store, "U")
    fill(store, 4)
    store.state.topic_rules = {"T": TopicRule(keep_ms=HOUR_MS)}
    clock.ms += 2 * HOUR_MS
    age(store, clock, 7, hours=2)
    clean(store, by_hand=True)
    place, _, _ = store.state.queues.simple[("U", 0)].entry(0)
    assert store.log_start == place // 4096 * 4096 > 0


def test_a_full_disk_takes_files_that_a_longer_time_would_keep(
    store: MessageStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "LONG")
    fill(store, 5)
    store.state.topic_rules = {"LONG": TopicRule(keep_ms=1000 * HOUR_MS)}
    monkeypatch.setattr(type(store.cleaner), "_room", staticmethod(lambda _, what: _full(what)))
    clean(store)
    assert store.min_offset("LONG", 0) == store.max_offset("LONG", 0) == 1


def _full(what: str) -> object:
    from aerobee.store.base.retention import Room

    return Room(88 << 30, 12 << 30, what)
