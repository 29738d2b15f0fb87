"""Requests about the broker as a whole: its settings, what it is doing, cleaning."""

import re

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.codec import java_properties

from ..parts import START_MS, Parts

# Names that a Java broker 5.3.3 has at rest; see §10 of its requests. PATH is the commit log's.
RUNTIME_NAMES = {
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "ackThreadPoolQueueCapacity",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize",
    "bootTimestamp",
    "brokerActive",
    "brokerVersion",
    "brokerVersionDesc",
    "commitLogDirCapacity",
    "commitLogDiskRatio",
    "commitLogDiskRatio_PATH",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getFoundTps",
    "getMessageEntireTimeMax",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "litePullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "putTps",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainHowManyDataToFlush",
    "remainTransientStoreBufferNumbs",
    "runtime",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
    "timerCongestNum",
    "timerDequeueTps",
    "timerEnqueueTps",
    "timerOffsetBehind",
    "timerReadBehind",
}
THREE_RATES = re.compile(r"\d+\.\d+ \d+\.\d+ \d+\.\d+")


def runtime(parts: Parts) -> dict[str, str]:
    body = parts.ask(codes.GET_BROKER_RUNTIME_INFO).body
    assert isinstance(body, bytes)
    return KVTable.decode(body).table


# --- 26 -------------------------------------------------------------------------------------------


def test_the_settings_come_as_properties_with_their_version(parts: Parts) -> None:
    reply = parts.ask(codes.GET_BROKER_CONFIG)
    assert reply.fields is not None
    version = DataVersion.decode(reply.fields["version"].encode())
    assert version == DataVersion(0, START_MS, 0)
    assert isinstance(reply.body, bytes)
    found = java_properties.parse(reply.body.decode())
    assert found["brokerName"] == "broker-a"
    assert found["maxIndexNum"] == "400"
    lines = reply.body.decode().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("=")[0])


# --- 28 -------------------------------------------------------------------------------------------


def test_the_runtime_info_has_every_name_of_a_java_broker(parts: Parts) -> None:
    path = str(parts.config.commit_log_dir)
    names = {name.replace(path, "PATH") for name in runtime(parts)}
    assert names == RUNTIME_NAMES


def test_an_idle_broker_says_so_in_javas_forms(parts: Parts) -> None:
    parts.now_ms += ((26 * 60 + 3) * 60 + 4) * 1_000
    found = runtime(parts)
    assert found["brokerActive"] == "true"
    assert (found["brokerVersionDesc"], found["brokerVersion"]) == ("V5_3_3", "479")
    assert found["bootTimestamp"] == str(START_MS)
    assert found["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert found["earliestMessageTimeStamp"] == "-1"
    assert found["putMessageTimesTotal"] == "1"  # as in Java, which divides by it
    assert found["putMessageAverageSize"] == "0.0"
    assert found["sendThreadPoolQueueCapacity"] == "10000"
    for name in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"):
        assert THREE_RATES.fullmatch(found[name]), name
    for name in ("timerEnqueueTps", "timerDequeueTps", "putLatency99"):
        assert float(found[name]) == 0.0
    capacity = r"Total : \d+\.\d [KMGTPE]iB, Free : \d+\.\d [KMGTPE]iB\."
    assert re.fullmatch(capacity, found["commitLogDirCapacity"])
    for name in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        assert 0.0 < float(found[name]) <= 1.0


def test_a_busy_broker_says_what_it_does(parts: Parts) -> None:
    parts.topic("T")
    parts.put("T", body=b"x" * 300, at_ms=START_MS + 5)
    parts.put("T", body=b"x" * 100)
    parts.put("SCHEDULE_TOPIC_XXXX", 2, body=b"x" * 50)
    gets = parts.stats.gets("T", "G")
    for counter in (gets, gets.total):
        counter.messages, counter.bytes, counter.calls = 20, 2_000, 10
    parts.stats.misses.messages = 5
    parts.stats.failures.messages = 2
    parts.delays.offsets[3] = 0
    parts.stats.sample(parts.now_ms)
    found = runtime(parts)
    assert found["putMessageTimesTotal"] == "3"
    assert (found["putMessageSizeTotal"], found["putMessageAverageSize"]) == ("450", "150.0")
    assert found["putMessageFailedTimes"] == "2"
    assert found["putTps"] == "0.3 0.3 0.3"
    assert found["getTransferredTps"] == "2.0 2.0 2.0"
    assert found["getFoundTps"] == "1.0 1.0 1.0"
    assert found["getMissTps"] == "0.5 0.5 0.5"
    assert found["getTotalTps"] == "1.5 1.5 1.5"
    assert (found["msgPutTotalTodayNow"], found["msgGetTotalTodayNow"]) == ("2", "20")
    assert found["earliestMessageTimeStamp"] == str(START_MS + 5)
    assert found["commitLogMinOffset"] == "0"
    assert found["commitLogMaxOffset"] == str(parts.store.log_end)
    assert found["scheduleMessageOffset_3"] == "0,1"
    behind = parts.store.log_end - parts.store.durable_end
    assert behind < 1_024
    assert found["remainHowManyDataToFlush"] == f"{behind} B"


def test_the_totals_of_the_mornings_are_told(parts: Parts) -> None:
    parts.put("T")
    parts.stats.sample(START_MS + 24 * 3_600_000)
    parts.put("T")
    parts.stats.sample(START_MS + 48 * 3_600_000)
    found = runtime(parts)
    assert found["msgPutTotalYesterdayMorning"] == "1"
    assert found["msgPutTotalTodayMorning"] == "2"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (1_536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 40, "5.0 TiB"),
        (1 << 60, "1.0 EiB"),
    ],
)
def test_bytes_are_written_as_java_writes_them(count: int, text: str) -> None:
    from aerobee.broker.admin.runtime_info import _size

    assert _size(count) == text


# --- 316 ------------------------------------------------------------------------------------------


def test_queues_of_topics_that_are_gone_are_cleaned_away(parts: Parts) -> None:
    parts.topic("Here")
    for topic in ("Here", "Gone", "TRANS_CHECK_MAX_TIME_TOPIC"):
        parts.put(topic)
    assert parts.ask(codes.CLEAN_UNUSED_TOPIC).code == 0
    assert set(parts.store.topics()) == {"Here", "TRANS_CHECK_MAX_TIME_TOPIC"}


# --- 200056 ---------------------------------------------------------------------------------------


def test_the_records_of_pop_are_in_files_already(parts: Parts) -> None:
    assert parts.ask(codes.POP_ROLLBACK).code == codes.SUCCESS
