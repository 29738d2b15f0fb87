"""Counters and their rates: the sums and averages of RocketMQ's, with time moved by hand."""

import time

import pytest
from aerobee.broker.runtime import stats as module
from aerobee.broker.runtime.stats import CALLS, Counter, PartialCounter, Stats
from aerobee.protocol.bodies.stats import BrokerStatsItem
from aerobee.store.base.errors import StoreError
from aerobee.store.engine.messages import Message

START_MS = 1_700_000_000_000
TEN_S = 10_000
HOUR_MS = 3_600_000


@pytest.fixture
def stats() -> Stats:
    return Stats("DefaultCluster", lambda: START_MS)


def count(counter: Counter, messages: int, size: int = 0, calls: int = 0) -> None:
    """Count as the handlers do: in the counter, and in the total that it is part of."""
    counters = (counter, counter.total) if isinstance(counter, PartialCounter) else (counter,)
    for each in counters:
        each.messages += messages
        each.bytes += size
        each.calls += calls


def sums(stats: Stats, name: str, key: str) -> tuple[int, int, int]:
    found = stats.item(name, key)
    assert found is not None
    return found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum


# --- what there is --------------------------------------------------------------------------------


def test_what_was_never_counted_does_not_exist(stats: Stats) -> None:
    stats.puts("T")  # a topic that is known but got nothing
    assert stats.item("TOPIC_PUT_NUMS", "T") is None
    assert stats.item("TOPIC_PUT_NUMS", "NoSuch") is None
    assert stats.item("NO_SUCH_NAME", "T") is None
    assert stats.item("BROKER_PUT_NUMS", "OtherCluster") is None


def test_what_was_counted_is_there_at_once_and_has_sums_after_a_sample(stats: Stats) -> None:
    count(stats.puts("T"), 3)
    assert sums(stats, "TOPIC_PUT_NUMS", "T") == (0, 0, 0)
    stats.sample(START_MS)
    assert sums(stats, "TOPIC_PUT_NUMS", "T") == (3, 3, 3)


@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("TOPIC_PUT_NUMS", "T", 2),
        ("TOPIC_PUT_SIZE", "T", 200),
        ("GROUP_GET_NUMS", "T@G", 6),
        ("GROUP_GET_SIZE", "T@G", 600),
        ("SNDBCK_PUT_NUMS", "T@G", 1),
        ("BROKER_PUT_NUMS", "DefaultCluster", 7),
        ("BROKER_GET_NUMS", "DefaultCluster", 6),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 7),
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster", 6),
    ],
)
def test_the_items_have_rocketmqs_names_and_keys(
    stats: Stats, name: str, key: str, total: int
) -> None:
    count(stats.puts("T"), 2, 200)
    count(stats.puts("U"), 5, 500)
    count(stats.gets("T", "G"), 6, 600, 2)
    count(stats.send_backs("T", "G"), 1)
    stats.sample(START_MS)
    assert sums(stats, name, key) == (total, total, total)


def test_deliveries_of_a_delay_level_are_counted_by_queue(stats: Stats) -> None:
    source = ("SCHEDULE_TOPIC_XXXX", 2, "SCHEDULE_CONSUMER")
    message = Message(("T", 0), 0, 0, 0, b"", b"", b"", 0)
    stats.moved([message, message], [(0, 0, 100), StoreError("full")], source)
    stats.sample(START_MS)
    key = "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER"
    assert sums(stats, "QUEUE_GET_NUMS", key) == (1, 1, 1)
    assert sums(stats, "QUEUE_GET_SIZE", key) == (100, 100, 100)
    assert stats.item("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@1@SCHEDULE_CONSUMER") is None


# --- rates ----------------------------------------------------------------------------------------


def test_a_minute_forgets_what_is_older(stats: Stats) -> None:
    counter = stats.puts("T")
    count(counter, 60)
    for tick in range(7):
        stats.sample(START_MS + tick * TEN_S)
        # At the start the window is as long as there are samples: from 10 s before the first.
        seconds = min(10 * (tick + 1), 60)
        expected = 60 / seconds if tick < 6 else 0.0
        assert stats.put_tps("T") == pytest.approx(expected), tick
    assert sums(stats, "TOPIC_PUT_NUMS", "T")[0] == 0


def test_a_steady_stream_has_its_rate(stats: Stats) -> None:
    counter = stats.puts("T")
    for tick in range(20):
        count(counter, 50, 5_000)
        stats.sample(START_MS + tick * TEN_S)
    found = stats.item("TOPIC_PUT_SIZE", "T")
    assert found is not None
    assert found.stats_minute == BrokerStatsItem(30_000, 500.0, 100.0)


def test_the_mean_is_per_request_where_requests_carry_many(stats: Stats) -> None:
    count(stats.gets("T", "G"), 30, 3_000, calls=3)
    stats.sample(START_MS)
    found = stats.item("GROUP_GET_NUMS", "T@G")
    assert found is not None
    assert found.stats_minute == BrokerStatsItem(30, 3.0, 10.0)
    assert stats.get_tps("T", "G") == 3.0
    assert stats.get_tps("T", "Other") == 0.0


def test_hour_and_day_move_at_their_own_pace(stats: Stats) -> None:
    counter = stats.puts("T")
    stats.sample(START_MS)
    count(counter, 5)
    stats.sample(START_MS + TEN_S)
    assert sums(stats, "TOPIC_PUT_NUMS", "T") == (5, 0, 0)
    stats.sample(START_MS + 600_000)
    assert sums(stats, "TOPIC_PUT_NUMS", "T")[1:] == (5, 0)
    stats.sample(START_MS + HOUR_MS)
    assert sums(stats, "TOPIC_PUT_NUMS", "T")[1:] == (5, 5)
    for minutes in range(70, 200, 10):
        stats.sample(START_MS + minutes * 60_000)
    assert sums(stats, "TOPIC_PUT_NUMS", "T") == (0, 0, 5)
    for hours in range(4, 27):
        stats.sample(START_MS + hours * HOUR_MS)
    assert sums(stats, "TOPIC_PUT_NUMS", "T") == (0, 0, 0)


def test_a_counter_keeps_few_values_however_long_it_runs(stats: Stats) -> None:
    counter = stats.puts("T")
    for tick in range(20_000):
        count(counter, 1)
        stats.sample(START_MS + tick * TEN_S)
    kept = sum(len(history._points) for history in counter._histories.values())
    assert kept <= (6 + 2) + (6 + 2) + (24 + 2)


def test_the_brokers_rates_are_over_ten_seconds_one_and_ten_minutes(stats: Stats) -> None:
    counter = stats.gets("T", "G")
    for tick in range(100):
        if tick >= 99:
            count(counter, 100, calls=10)
        elif tick >= 40:
            count(counter, 10, calls=1)
        stats.sample(START_MS + tick * TEN_S)
    gets = stats.broker_gets()
    assert stats.total_tps(gets) == pytest.approx([10.0, 150 / 60, 690 / 600])
    assert stats.total_tps(gets, CALLS) == pytest.approx([1.0, 15 / 60, 69 / 600])
    count(stats.misses, 20)
    stats.sample(START_MS + 100 * TEN_S)
    assert stats.total_tps(stats.misses)[0] == 2.0


# --- totals ---------------------------------------------------------------------------------------


def test_deleted_topics_and_groups_leave_the_totals_alone(stats: Stats) -> None:
    count(stats.puts("T"), 4, 400)
    count(stats.gets("T", "G"), 3, 300)
    count(stats.gets("U", "G"), 2, 200)
    count(stats.send_backs("T", "G"), 1)
    stats.delete_topic("T")
    assert (stats.broker_puts().messages, stats.broker_gets().messages) == (4, 5)
    assert [key for key, _ in stats.all_gets()] == [("U", "G")]
    assert list(stats.all_puts()) == []
    stats.delete_group("G")
    assert stats.broker_gets().messages == 5
    assert list(stats.all_gets()) == []
    stats.delete_topic("never")
    assert stats.broker_puts().bytes == 400


def test_system_topics_are_not_counted_for_the_day(stats: Stats) -> None:
    count(stats.puts("T"), 4)
    count(stats.puts("SCHEDULE_TOPIC_XXXX"), 9)
    count(stats.puts("rmq_sys_REVIVE_LOG_c"), 9)
    count(stats.gets("T", "G"), 3)
    count(stats.gets("SELF_TEST_TOPIC", "G"), 9)
    assert (stats.users_puts().messages, stats.users_gets().messages) == (4, 3)


def test_midnight_starts_a_new_day(stats: Stats) -> None:
    count(stats.puts("T"), 4)
    count(stats.gets("T", "G"), 1)
    today = time.localtime(START_MS / 1000)
    midnight = time.mktime((*today[:2], today[2] + 1, 0, 0, 0, 0, 0, -1))
    stats.sample(int(midnight * 1000) - 1)
    assert stats.day_starts == (0, 0, 0, 0)
    stats.sample(int(midnight * 1000))
    assert stats.day_starts == (0, 4, 0, 1)
    count(stats.puts("T"), 6)
    stats.sample(int(midnight * 1000) + 25 * HOUR_MS)
    assert stats.day_starts == (4, 10, 1, 1)


def test_keys_beyond_the_limit_share_a_counter(
    stats: Stats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEYS_MAX", 1)
    count(stats.puts("A"), 1)
    count(stats.puts("B"), 2)
    count(stats.gets("A", "G"), 4)
    count(stats.gets("B", "G"), 8)
    count(stats.send_backs("A", "G"), 1)
    count(stats.send_backs("B", "G"), 1)
    assert [topic for topic, _ in stats.all_puts()] == ["A"]
    assert stats.item("TOPIC_PUT_NUMS", "B") is None
    assert (stats.broker_puts().messages, stats.broker_gets().messages) == (3, 12)
    assert stats.item("SNDBCK_PUT_NUMS", "B@G") is None


def test_many_counters_are_sampled_in_parts(stats: Stats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTERS_PER_PART", 10)
    for number in range(25):
        count(stats.puts(f"T{number}"), 1)
    parts = stats.sample_in_parts(START_MS)
    next(parts)
    count(stats.puts("T99"), 1)  # made meanwhile: the next sample has it
    assert len(list(parts)) == 1
    assert sums(stats, "TOPIC_PUT_NUMS", "T24") == (1, 1, 1)
    assert sums(stats, "BROKER_PUT_NUMS", "DefaultCluster") == (26, 26, 26)
