"""Requests about topics, with the remarks that a real broker gives."""

from pathlib import Path

import pytest
from aerobee.broker.topics import topics as topics_module
from aerobee.protocol import codes
from aerobee.protocol.bodies.stats import TopicStatsTable
from aerobee.protocol.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
)
from aerobee.protocol.command import Response
from aerobee.protocol.errors import Refusal

from ..parts import START_MS, Parts, refused

# What a Java broker without a name of its own calls its system topics; see the live answers.
SYSTEM_TOPICS = {
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "BenchmarkTest",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENT",
    "TBW102",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "SELF_TEST_TOPIC",
    "DefaultCluster",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRACE_TOPIC",
    "DefaultCluster_REPLY_TOPIC",
    "rmq_sys_wheel_timer",
    "CHECKPOINT_TOPIC",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "broker-a",
}


def update(parts: Parts, topic: str, **fields: object) -> Response:
    """UPDATE_AND_CREATE_TOPIC as mqadmin sends it."""
    wanted: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": "",
        "force": False,
    }
    return parts.ask(codes.UPDATE_AND_CREATE_TOPIC, **(wanted | fields))


# --- 17 -------------------------------------------------------------------------------------------


def test_a_topic_is_made_and_told_to_the_name_servers(parts: Parts) -> None:
    reply = update(parts, "T", readQueueNums=3, writeQueueNums=5, perm=4, order=True)
    assert (reply.code, reply.remark) == (0, "not set any response code")
    made = TopicConfig("T", 3, 5, 4, order=True)
    assert parts.topics.get("T") == made
    assert parts.changes == [made]


def test_the_same_again_changes_nothing(parts: Parts) -> None:
    update(parts, "T")
    version = parts.topics.version
    assert update(parts, "T").code == 0
    assert parts.topics.version == version
    assert len(parts.changes) == 1


def test_attributes_are_added_changed_and_taken_away(parts: Parts) -> None:
    update(parts, "T", attributes="+message.type=FIFO,+reserve.time=5")
    update(parts, "T", attributes="+message.type=DELAY,-reserve.time", perm=4)
    topic = parts.topics.get("T")
    assert topic is not None
    assert topic.attributes == {"message.type": "DELAY"}
    assert topic.perm == 4
    update(parts, "T")  # without a word about them they stay
    topic = parts.topics.get("T")
    assert topic is not None
    assert topic.attributes == {"message.type": "DELAY"}


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+message.type=FIFO,+message.type=DELAY", "key duplication: +message.type"),
        ("+message.type=FIFO,-message.type", "alter duplication key. key: message.type"),
        ("+colour=red", "unsupported key: colour"),
        ("++colour=red", "wrong format key: ++colour"),
        ("-message.type", "only add attribute is supported while creating topic"),
        ("+message.type=LOUD", "attribute message.type is 'LOUD', but must be one of"),
        ("+reserve.time=soon", "attribute reserve.time is 'soon', but must be a whole number"),
        ("+reserve.time=-2", "attribute reserve.time is '-2', but must be a whole number"),
        ("+retention.ms=0", "attribute retention.ms is '0', but must be a whole number of ms"),
        ("+retention.bytes=1k", "attribute retention.bytes is '1k', but must be a whole number"),
        ("+queue.type=BatchCQ,+retention.ms=1", "retention.ms and retention.bytes are for topics"),
    ],
)
def test_a_wrong_attribute_makes_no_topic(parts: Parts, attributes: str, remark: str) -> None:
    with pytest.raises(Refusal) as caught:
        update(parts, "T", attributes=attributes)
    assert caught.value.code == codes.SYSTEM_ERROR
    assert caught.value.remark.startswith(remark)
    assert parts.topics.get("T") is None


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ("+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("-reserve.time", "attempt to delete a nonexistent key: reserve.time"),
    ],
)
def test_an_attribute_that_can_not_be_changed_stays(
    parts: Parts, attributes: str, remark: str
) -> None:
    update(parts, "T", attributes="+queue.type=SimpleCQ")
    with pytest.raises(Refusal) as caught:
        update(parts, "T", attributes=attributes)
    assert caught.value.remark == remark


def test_a_mixed_topic_needs_the_setting(parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        update(parts, "T", attributes="+message.type=MIXED")
    assert caught.value.code == codes.INVALID_PARAMETER
    assert (caught.value.remark or "").startswith("MIXED message type is not supported.")
    assert "enableMixedMessageType is false" in (caught.value.remark or "")
    other = Parts(tmp_path / "other", enable_mixed_message_type=True)
    try:
        assert update(other, "T", attributes="+message.type=MIXED").code == 0
    finally:
        other.store.close()


@pytest.mark.parametrize("name", [*sorted(SYSTEM_TOPICS), "rmq_sys_anything"])
def test_a_system_topic_can_not_be_changed_or_deleted(parts: Parts, name: str) -> None:
    for code in (codes.UPDATE_AND_CREATE_TOPIC, codes.DELETE_TOPIC_IN_BROKER):
        fields = {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        refusal = refused(parts, code, **fields)
        assert refusal.code == codes.INVALID_PARAMETER
        assert refusal.remark == f"The topic[{name}] is conflict with system topic."


def test_a_system_topic_can_be_repaired_with_the_check_off(tmp_path: Path) -> None:
    parts = Parts(tmp_path, validate_system_topic_when_update_topic=False)
    try:
        assert update(parts, "TBW102").code == 0
        assert parts.topics.get("TBW102") == TopicConfig("TBW102", 4, 4)
    finally:
        parts.store.close()


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "a" * 128, "ü"])
def test_a_bad_name_is_refused_wherever_it_comes_up(parts: Parts, name: str) -> None:
    one = {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    assert refused(parts, codes.UPDATE_AND_CREATE_TOPIC, **one).code == codes.INVALID_PARAMETER
    assert refused(parts, codes.DELETE_TOPIC_IN_BROKER, **one).code == codes.INVALID_PARAMETER
    body = CreateTopicListRequestBody([TopicConfig("Good"), TopicConfig(name)]).encode()
    list_code = codes.UPDATE_AND_CREATE_TOPIC_LIST
    assert refused(parts, list_code, body).code == codes.INVALID_PARAMETER
    assert parts.topics.get("Good") is None


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"readQueueNums": -1}, codes.INVALID_PARAMETER, "would have -1 read and 4 write queues"),
        ({"writeQueueNums": 65_537}, codes.INVALID_PARAMETER, "would have 65537 queues"),
        ({"perm": 8}, codes.INVALID_PARAMETER, "perm of topic T is 8; it must be from 0 to 7"),
        ({"perm": -1}, codes.INVALID_PARAMETER, "perm of topic T is -1"),
        ({"topicFilterType": "TAGS"}, codes.SYSTEM_ERROR, "it must be SINGLE_TAG or MULTI_TAG"),
        ({"perm": "rw"}, codes.SYSTEM_ERROR, "perm"),
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(
    parts: Parts, fields: dict[str, object], code: int, remark: str
) -> None:
    with pytest.raises(Refusal) as caught:
        update(parts, "T", **fields)
    assert caught.value.code == code
    assert remark in caught.value.remark
    assert parts.topics.get("T") is None


# --- 18 -------------------------------------------------------------------------------------------


def test_a_list_of_topics_is_made_and_known_ones_are_passed_over(parts: Parts) -> None:
    parts.topic("Old")
    wanted = [TopicConfig("Old", 2, 2), TopicConfig("New", 3, 3)]
    wanted[1].attributes = {"+message.type": "FIFO"}
    body = CreateTopicListRequestBody(wanted).encode()
    reply = parts.ask(codes.UPDATE_AND_CREATE_TOPIC_LIST, body)
    assert (reply.code, reply.remark) == (0, "not set any response code")
    made = TopicConfig("New", 3, 3, attributes={"message.type": "FIFO"})
    assert parts.topics.get("New") == made
    assert parts.changes == [made]


def test_a_list_with_one_wrong_topic_makes_none(parts: Parts) -> None:
    body = CreateTopicListRequestBody([TopicConfig("A"), TopicConfig("B", perm=99)]).encode()
    assert "perm of topic B" in refused(parts, codes.UPDATE_AND_CREATE_TOPIC_LIST, body).remark
    assert parts.topics.get("A") is None


def test_a_list_that_is_too_long_is_refused(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    from aerobee.broker.admin import topics as admin_topics

    monkeypatch.setattr(admin_topics, "TOPICS_PER_REQUEST_MAX", 1)
    body = CreateTopicListRequestBody([TopicConfig("A"), TopicConfig("B")]).encode()
    remark = refused(parts, codes.UPDATE_AND_CREATE_TOPIC_LIST, body).remark
    assert remark == "2 topics in one request, the limit is 1; send several"


def test_more_topics_than_the_limit_are_refused_together(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = len(parts.topics.all())
    monkeypatch.setattr(topics_module, "TOPICS_MAX", there + 1)
    body = CreateTopicListRequestBody([TopicConfig("A"), TopicConfig("B")]).encode()
    remark = refused(parts, codes.UPDATE_AND_CREATE_TOPIC_LIST, body).remark
    assert remark == f"there are {there} topics, the limit is {there + 1}; delete some"
    assert parts.topics.get("A") is None


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b'{"topicConfigList":5}'])
def test_a_list_that_can_not_be_read_is_refused(parts: Parts, body: bytes | None) -> None:
    refusal = refused(parts, codes.UPDATE_AND_CREATE_TOPIC_LIST, body)
    assert refusal.code == codes.SYSTEM_ERROR
    assert "CreateTopicListRequestBody" in refusal.remark


# --- 21, 351, 305 ---------------------------------------------------------------------------------


def test_all_topics_come_with_their_version(parts: Parts) -> None:
    parts.topic("T")
    reply = parts.ask(codes.GET_ALL_TOPIC_CONFIG)
    assert reply.fields == {}
    assert isinstance(reply.body, bytes)
    table = TopicConfigAndMappingSerializeWrapper.decode(reply.body)
    assert table.topic_config_table == parts.topics.all()
    assert table.data_version == parts.topics.version


def test_one_topic_is_described_as_java_does(parts: Parts) -> None:
    parts.topic("TxT", 4)
    assert parts.ask(codes.GET_TOPIC_CONFIG, topic="TxT", lo=True).body == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"TxT","topicSysFlag":0,"writeQueueNums":4}'
    )


def test_an_unknown_topic_can_not_be_described(parts: Parts) -> None:
    refusal = refused(parts, codes.GET_TOPIC_CONFIG, topic="nope")
    assert refusal.code == codes.TOPIC_NOT_EXIST
    assert (refusal.remark or "").startswith("No topic in this broker. topic: nope; create it")


def test_the_system_topics_are_javas(parts: Parts) -> None:
    reply = parts.ask(codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert isinstance(reply.body, bytes)
    found = TopicList.decode(reply.body)
    assert set(found.topic_list) == SYSTEM_TOPICS
    assert found.broker_addr is None


def test_a_trace_topic_of_ones_own_belongs_to_the_system(tmp_path: Path) -> None:
    parts = Parts(tmp_path, trace_topic_enable=True, msg_trace_topic_name="Traces")
    try:
        body = parts.ask(codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body
        assert isinstance(body, bytes)
        assert set(TopicList.decode(body).topic_list) == SYSTEM_TOPICS | {"Traces"}
    finally:
        parts.store.close()


# --- 202 ------------------------------------------------------------------------------------------


def test_the_status_of_a_topic_has_each_queue(parts: Parts) -> None:
    parts.topic("T", 2)
    parts.put("T", 1, at_ms=START_MS + 5)
    parts.put("T", 1, at_ms=START_MS + 9)
    parts.stats.sample(parts.now_ms)
    reply = parts.ask(codes.GET_TOPIC_STATS_INFO, topic="T")
    assert reply.body == (
        b'{"offsetTable":{'
        b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:'
        b'{"lastUpdateTimestamp":1700000000009,"maxOffset":2,"minOffset":0}},"topicPutTps":0.2}'
    )


def test_the_status_counts_the_queues_that_are_written_or_read(parts: Parts) -> None:
    parts.topics.put(TopicConfig("T", 1, 3))
    body = parts.ask(codes.GET_TOPIC_STATS_INFO, topic="T").body
    assert isinstance(body, bytes)
    assert len(TopicStatsTable.decode(body).offset_table) == 3


def test_an_unknown_topic_has_no_status(parts: Parts) -> None:
    refusal = refused(parts, codes.GET_TOPIC_STATS_INFO, topic="%DLQ%CG3")
    assert (refusal.code, refusal.remark) == (17, "topic[%DLQ%CG3] not exist")


# --- 215 ------------------------------------------------------------------------------------------


def test_a_deleted_topic_leaves_nothing(parts: Parts) -> None:
    parts.topic("T")
    parts.topic("Other")
    for topic in ("T", "Other"):
        parts.put(topic)
        parts.offsets.commit(topic, "g", 0, 1)
        parts.stats.sample(parts.now_ms)
    reply = parts.ask(codes.DELETE_TOPIC_IN_BROKER, topic="T")
    assert (reply.code, reply.remark) == (0, None)
    assert parts.topics.get("T") is None
    assert parts.store.queues("T") == []
    assert parts.offsets.topics_of("g") == ["Other"]
    assert parts.stats.item("TOPIC_PUT_NUMS", "T") is None
    assert parts.store.queues("Other") == [0]
    assert parts.stats.item("TOPIC_PUT_NUMS", "Other") is not None


def test_pop_retry_topics_go_with_their_topic(parts: Parts) -> None:
    for name in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%h_T"):
        parts.topic(name)
    parts.offsets.commit("T", "g", 0, 1)
    parts.ask(codes.DELETE_TOPIC_IN_BROKER, topic="T")
    left = {name for name in parts.topics.all() if name.startswith("%RETRY%")}
    assert left == {"%RETRY%h_T"}  # h never read T


def test_an_unknown_topic_is_deleted_without_a_word(parts: Parts) -> None:
    assert parts.ask(codes.DELETE_TOPIC_IN_BROKER, topic="nope").code == 0
