"""Requests about progress and rates: 208, 303, 315, 317."""

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
)

from ..parts import ADDRESS, START_MS, Parts, refused


def progress(parts: Parts, **fields: object) -> ConsumeStats:
    body = parts.ask(codes.GET_CONSUME_STATS, consumerGroup="G", **fields).body
    assert isinstance(body, bytes)
    return ConsumeStats.decode(body)


def topics_of(found: ConsumeStats) -> set[str]:
    return {queue.topic for queue in found.offset_table}


# --- 208 ------------------------------------------------------------------------------------------


def test_the_progress_of_a_group_is_told_as_java_does(parts: Parts) -> None:
    parts.topic("AutoT", 2)
    parts.put("AutoT", 0, at_ms=1_795_228_516_139)
    parts.put("AutoT", 0, at_ms=1_795_228_516_500)
    parts.put("AutoT", 1)
    parts.offsets.commit("AutoT", "G", 0, 1)
    parts.offsets.pulled("AutoT", "G", 0, 2)
    reply = parts.ask(codes.GET_CONSUME_STATS, consumerGroup="G")
    assert reply.body == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"AutoT"}:'
        b'{"brokerOffset":2,"consumerOffset":1,"lastTimestamp":1795228516139,"pullOffset":2},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"AutoT"}:'
        b'{"brokerOffset":1,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
    )


def test_the_rates_of_the_topics_add_up(parts: Parts) -> None:
    for topic in ("T", "U"):
        parts.topic(topic, 1)
        parts.offsets.commit(topic, "G", 0, 1)
        parts.stats.gets(topic, "G").messages += 20
    parts.stats.sample(START_MS)
    assert progress(parts).consume_tps == 4.0


def test_all_topics_with_offsets_count_unless_the_group_has_left_them(parts: Parts) -> None:
    for topic in ("T", "U", "Gone"):
        parts.topic(topic, 1)
        parts.offsets.commit(topic, "G", 0, 0)
    parts.topics.delete("Gone")
    assert topics_of(progress(parts)) == {"T", "U"}
    parts.join("G", {"T": "*"})
    assert topics_of(progress(parts)) == {"T"}
    assert topics_of(progress(parts, topic="U")) == set()
    assert topics_of(progress(parts, topicList="U;T;nope;")) == {"T", "U"}


def test_what_a_live_group_has_popped_and_gets_again_counts(parts: Parts) -> None:
    again = ["%RETRY%G_T", "%RETRY%G+T"]
    for topic in ("T", "U", "%RETRY%G_U", *again):
        parts.topic(topic, 1)
        parts.offsets.commit(topic, "G", 0, 0)
    parts.join("G", {"T": "*"})
    assert topics_of(progress(parts)) == {"T", *again}
    assert topics_of(progress(parts, topic=again[0])) == {again[0]}
    parts.ask(codes.CLONE_GROUP_OFFSET, srcGroup="G", destGroup="H", offline=False)
    assert sorted(parts.offsets.topics_of("H")) == sorted(["T", *again])


def test_one_topic_can_be_asked_for_before_there_is_an_offset(parts: Parts) -> None:
    parts.topic("T", 1)
    found = progress(parts, topic="T")
    assert found.offset_table == {MessageQueue("T", "broker-a", 0): OffsetWrapper()}


# --- 317 ------------------------------------------------------------------------------------------


def test_the_progress_of_all_groups_is_told_at_once(parts: Parts) -> None:
    parts.topic("T", 1, order=True)
    parts.topic("U", 1)
    parts.groups.find("G")
    for topic in ("T", "U"):
        for _ in range(3):
            parts.put(topic)
        parts.offsets.commit(topic, "G", 0, 1)
        parts.offsets.pulled(topic, "G", 0, 2)
    body = parts.ask(codes.GET_BROKER_CONSUME_STATS, isOrder=False).body
    assert isinstance(body, bytes)
    found = ConsumeStatsList.decode(body)
    (mine,) = [each["G"] for each in found.consume_stats_list if "G" in each]
    assert [topics_of(one) for one in mine] == [{"T"}, {"U"}]
    assert (found.broker_addr, found.total_diff, found.total_inflight_diff) == (ADDRESS, 4, 2)

    body = parts.ask(codes.GET_BROKER_CONSUME_STATS, isOrder=True).body
    assert isinstance(body, bytes)
    found = ConsumeStatsList.decode(body)
    (mine,) = [each["G"] for each in found.consume_stats_list if "G" in each]
    assert [topics_of(one) for one in mine] == [{"T"}]
    assert found.total_diff == 2


# --- 303 ------------------------------------------------------------------------------------------


def test_the_time_span_of_each_queue_is_told(parts: Parts) -> None:
    parts.topic("T", 2)
    for seconds in (1, 2, 4):
        parts.put("T", 0, at_ms=START_MS + seconds * 1_000)
    parts.offsets.commit("T", "G", 0, 2)
    parts.now_ms = START_MS + 10_000
    body = parts.ask(codes.QUERY_CONSUME_TIME_SPAN, topic="T", group="G").body
    assert isinstance(body, bytes)
    used, empty = QueryConsumeTimeSpanBody.decode(body).consume_time_span_set
    assert used.message_queue == MessageQueue("T", "broker-a", 0)
    assert used.min_time_stamp == START_MS + 1_000
    assert used.max_time_stamp == START_MS + 4_000
    assert used.consume_time_stamp == START_MS + 2_000
    assert used.delay_time == 6_000  # the next message waits since its store time
    assert used.min_time_stamp_str is not None
    assert used.min_time_stamp_str.endswith(":21:000")
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)


def test_a_group_that_never_came_is_as_late_as_the_first_message(parts: Parts) -> None:
    parts.topic("T", 1)
    parts.put("T", 0)
    parts.now_ms = START_MS + 5_000
    body = parts.ask(codes.QUERY_CONSUME_TIME_SPAN, topic="T", group="G").body
    assert isinstance(body, bytes)
    (span,) = QueryConsumeTimeSpanBody.decode(body).consume_time_span_set
    assert (span.consume_time_stamp, span.delay_time) == (START_MS, 5_000)


def test_an_unknown_topic_has_no_time_span(parts: Parts) -> None:
    refusal = refused(parts, codes.QUERY_CONSUME_TIME_SPAN, topic="nope", group="G")
    assert (refusal.code, refusal.remark) == (17, "topic[nope] not exist; create it")


# --- 315 ------------------------------------------------------------------------------------------


def test_an_item_is_told_as_java_does(parts: Parts) -> None:
    parts.put("T")
    fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
    assert parts.ask(codes.VIEW_BROKER_STATS_DATA, **fields).body == (
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":0.0,"sum":0,"tps":0.0}}'
    )
    parts.stats.sample(START_MS)
    body = parts.ask(codes.VIEW_BROKER_STATS_DATA, **fields).body
    assert isinstance(body, bytes)
    assert body.endswith(b'"statsMinute":{"avgpt":1.0,"sum":1,"tps":0.1}}')


def test_what_a_queue_got_is_told_from_the_store(parts: Parts) -> None:
    parts.topic("T", 2)
    for hours in (30, 20, 2):
        parts.put("T", 1, at_ms=START_MS - hours * 3_600_000)
    for minutes in (30, 0):
        parts.put("T", 1, at_ms=START_MS - minutes * 60_000 - 1_000)
    parts.now_ms = START_MS
    fields = {"statsName": "QUEUE_PUT_NUMS", "statsKey": "T@1"}
    body = parts.ask(codes.VIEW_BROKER_STATS_DATA, **fields).body
    assert isinstance(body, bytes)
    found = BrokerStatsData.decode(body)
    assert (found.stats_minute.sum, found.stats_hour.sum, found.stats_day.sum) == (1, 2, 4)
    assert found.stats_hour.tps == 2 / 3_600
    parts.now_ms += 60_000
    body = parts.ask(codes.VIEW_BROKER_STATS_DATA, **fields).body
    assert isinstance(body, bytes)
    assert BrokerStatsData.decode(body).stats_minute == BrokerStatsItem()


@pytest.mark.parametrize("key", ["T@0", "T", "T@x", "T@99999999999", "@", "T@-1", "No@1"])
def test_a_queue_without_messages_has_no_item(parts: Parts, key: str) -> None:
    parts.topic("T", 2)
    parts.put("T", 1)
    fields = {"statsName": "QUEUE_PUT_NUMS", "statsKey": key}
    refusal = refused(parts, codes.VIEW_BROKER_STATS_DATA, **fields)
    assert (refusal.remark or "").startswith(f"The stats <QUEUE_PUT_NUMS> <{key}> not exist: ")


def test_an_item_that_was_never_counted_does_not_exist(parts: Parts) -> None:
    fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "NoSuch"}
    refusal = refused(parts, codes.VIEW_BROKER_STATS_DATA, **fields)
    assert (refusal.code, refusal.remark) == (
        1,
        "The stats <TOPIC_PUT_NUMS> <NoSuch> not exist: nothing was counted there since the start",
    )
