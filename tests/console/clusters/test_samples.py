"""Samples of several brokers as one row: what one of them does not tell is not known."""

from aerobee.console.clusters.samples import (
    NO_PROXY,
    Behind,
    BrokerSample,
    Timed,
    TimedGroup,
    age_of,
    group_row,
    in_turn,
    topic_row,
    total,
)
from aerobee.protocol.bodies.stats import QueueTimeSpan
from aerobee.protocol.bodies.summaries import GroupSummary, GroupTopicSummary, TopicSummary


def test_a_topic_is_the_sum_of_its_brokers() -> None:
    one = TopicSummary("T", 2, 4, 6, None, 5, 100, 900, 50, 1.5)
    two = TopicSummary("T", 2, 4, 6, "FIFO", 3, 50, 800, 20, 0.5)
    row = topic_row("T", {"b": Timed(2_000, two), "a": Timed(1_000, one)})
    assert (row.messages, row.puts, row.rate_in) == (8, 70, 2.0)
    assert (row.first_ms, row.last_ms, row.at_ms) == (50, 900, 1_000)
    assert (row.brokers, row.message_type, row.write_queues) == (["a", "b"], "FIFO", 8)


def test_what_one_broker_does_not_tell_is_not_known_of_all() -> None:
    known = TopicSummary("T", 1, 1, 6, None, 5)
    row = topic_row("T", {"a": Timed(1, known), "b": Timed(None, TopicSummary("T", 1, 1, 6))})
    assert (row.messages, row.at_ms) == (None, None)
    assert total([]) is None
    assert total([0, 0]) == 0


def test_a_group_has_the_oldest_wait_and_is_drained_at_its_rate() -> None:
    one = GroupSummary("G", True, 2, topics=[GroupTopicSummary("T", False, 30, 1, 5_000, 2.0)])
    two = GroupSummary("G", True, 2, topics=[GroupTopicSummary("T", False, 10, 0, 9_000, 2.0)])
    row = group_row("G", [TimedGroup(1, one), TimedGroup(2, two)])
    assert (row.lag, row.lag_ms, row.members, row.drain_s) == (40, 9_000, 2, 10.0)


def test_a_group_that_reads_nothing_has_no_lag_but_one_that_was_not_asked_has_an_unknown_one() -> (
    None
):
    empty = GroupSummary("G", True, 0)
    assert group_row("G", [TimedGroup(1, empty)]).lag == 0
    assert group_row("G", [TimedGroup(None, empty)]).lag is None


def test_subscriptions_differ_agree_or_are_not_known() -> None:
    def told(*differing: str | None, members: int = 2, behind: Behind = NO_PROXY) -> str | None:
        rows = [TimedGroup(1, GroupSummary("G", True, members, differing=one)) for one in differing]
        return group_row("G", rows, behind).differing

    assert told("", "a: x; b: y") == told(None, "a: x; b: y") == "a: x; b: y"
    assert told("", "") == ""
    assert told("", None) is None
    assert told() is None
    assert told("", behind=Behind(1, is_all=True)) is None
    assert told("", behind=Behind(0, is_all=False)) is None
    assert told("", members=0, behind=Behind(1, is_all=True)) == ""


def test_rates_are_read_as_both_lines_of_java_spell_them() -> None:
    sample = BrokerSample("c", "b", 0, "1.1.1.1:1")
    assert (sample.rate_in, sample.rate_out, sample.version) == (None, None, None)
    sample.runtime = {"putTps": "1.5 2 3", "getTransferedTps": "0.0 1 1", "commitLogDiskRatio": "x"}
    assert (sample.rate_in, sample.rate_out, sample.disk_ratio) == (1.5, 0.0, None)
    sample.runtime = {"getTransferredTps": "4", "aerobeeVersion": "1.0"}
    assert (sample.rate_out, sample.version) == (4.0, "aerobee 1.0")


def test_what_a_visitor_looks_at_is_asked_first_and_each_of_it_in_turn() -> None:
    sample = BrokerSample("c", "b", 0, "1.1.1.1:1")
    sample.topics = {"t": Timed(None, TopicSummary("t"))}
    sample.groups = {
        name: TimedGroup(at_ms, GroupSummary(name))
        for name, at_ms in (("g", 9), ("h", 5), ("i", 7))
    }
    assert in_turn(sample, {"g", "i"}) == [(True, "i"), (True, "g"), (False, "t"), (True, "h")]


def test_an_absurd_wait_is_that_of_the_first_message_of_the_queue() -> None:
    now_ms = 1_800_000_000_000
    span = QueueTimeSpan(min_time_stamp=now_ms - 7_000, delay_time=5_000)
    assert age_of(span, now_ms) == 5_000
    for absurd in (now_ms + 1, -1):  # the next message is gone, or the group never read
        span.delay_time = absurd
        assert age_of(span, now_ms) == 7_000
    span.min_time_stamp = -1
    assert age_of(span, now_ms) is None
