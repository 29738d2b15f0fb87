"""Each body reads what the Java classes wrote and writes the same text again."""

import json
import re
import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from aerobee.protocol.bodies import (
    assignment,
    clients,
    cluster,
    group,
    heartbeat,
    offsets,
    pop,
    queues,
    register,
    route,
    running,
    stats,
    topic,
    topic_queue_mapping,
)
from aerobee.protocol.bodies.body import Body, MessageQueue
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.subscription import subscription

GOLDEN = Path(__file__).parents[1] / "golden"
WRITTEN = json.loads((GOLDEN / "json_bodies.json").read_text("utf-8"))
ACCEPTED = json.loads((GOLDEN / "json_accepted.json").read_text("utf-8"))
SUBSCRIPTIONS = [
    vector
    for vector in json.loads((GOLDEN / "hashes.json").read_text("utf-8"))
    if vector["kind"] == "subscription"
]

MODULES = (assignment, clients, cluster, group, heartbeat, offsets, pop, queues, register, route)
KINDS: dict[str, type[Body]] = {
    name: kind
    for module in (*MODULES, running, stats, topic)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Body)
}
NAMELESS = {"BatchAckMessageRequestBody (bits 0, 3, 9)": "BatchAckMessageRequestBody"}


def kind_of(vector: dict[str, str]) -> type[Body]:
    return KINDS[NAMELESS.get(vector["name"]) or vector["class"].rpartition(".")[2]]


@pytest.mark.parametrize(
    "vector", [each for each in WRITTEN if "text" in each], ids=lambda each: each["name"]
)
def test_a_body_of_the_java_classes_is_read_and_written_the_same(vector: dict[str, str]) -> None:
    text = vector["text"]
    body = kind_of(vector).decode(text.encode())
    standard = "standard JSON" in vector["name"]
    if '"$ref"' in text:  # a reader must follow references, a writer need not make them
        text = text.replace('{"$ref":"$.statsDay"}', '{"avgpt":2.0,"sum":10,"tps":1.5}')
    assert body.encode(standard=standard).decode() == text


@pytest.mark.parametrize("vector", ACCEPTED, ids=lambda each: each["class"])
def test_a_text_that_java_accepts_means_the_same_here(vector: dict[str, str]) -> None:
    body = KINDS[vector["class"]].decode(vector["in"].encode())
    assert body.encode().decode() == vector["re_encoded"]


def test_every_vector_is_used() -> None:
    others = {each["name"] for each in WRITTEN if "text" not in each}
    assert others == {
        "RegisterBrokerBody, compressed (zlib of length-prefixed parts)",
        "heartbeat fingerprint",
    }


def compressed_vector() -> dict[str, str]:
    return next(each for each in WRITTEN if "inflated_hex" in each)


def test_a_compressed_registration_of_java_is_read() -> None:
    body = register.RegisterBrokerBody.decode_compressed(
        bytes.fromhex(compressed_vector()["hex"]), 479
    )
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.data_version == DataVersion(0, 1_700_000_000_000, 5)
    assert wrapper.topic_config_table == {
        "TopicA": topic.TopicConfig("TopicA", 8, 8, 6, attributes={"message.type": "NORMAL"})
    }
    assert body.filter_server_list == []
    line = wrapper.topic_config_table["TopicA"].to_line()
    assert line == compressed_vector()["topicConfigText"]


def test_an_older_broker_sends_no_static_topics_in_a_compressed_registration() -> None:
    data = zlib.compress(bytes.fromhex(compressed_vector()["inflated_hex"])[:-4])
    body = register.RegisterBrokerBody.decode_compressed(data, 412)
    assert list(body.topic_config_serialize_wrapper.topic_config_table) == ["TopicA"]
    with pytest.raises(ValueError, match="the number of static topics needs 4 bytes"):
        register.RegisterBrokerBody.decode_compressed(data, 413)


def test_static_topics_survive_compression() -> None:
    info = topic_queue_mapping.TopicQueueMappingInfo(
        "S", total_queues=2, bname="b", curr_id_map={0: 1, 1: 0}
    )
    encoded = info.encode()
    start = bytes.fromhex(compressed_vector()["inflated_hex"])[:-4]
    data = zlib.compress(start + struct.pack(">ii", 1, len(encoded)) + encoded)
    body = register.RegisterBrokerBody.decode_compressed(data, 479)
    assert body.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {"S": info}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the length of the data version needs 4 bytes"),
        (b"no zlib", "can't be inflated"),
        (zlib.compress(b"\xff\xff\xff\xff"), "the length of the data version is -1, below 0"),
        (zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03a "), "needs 3 bytes"),
        (zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03a b"), "2 of at least"),
        (
            zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x09a x 4 6 S"),
            "readQueueNums is 'x'",
        ),
    ],
)
def test_a_broken_compressed_registration_says_what_is_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        register.RegisterBrokerBody.decode_compressed(data, 479)


def test_a_compressed_registration_may_not_inflate_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(register, "INFLATED_BYTES_MAX", 1_000)
    with pytest.raises(ValueError, match="over the limit of 1000 bytes"):
        register.RegisterBrokerBody.decode_compressed(zlib.compress(bytes(1_001)), 479)


def test_attributes_of_a_topic_line_that_are_cut_at_a_blank_are_dropped() -> None:
    found = topic.TopicConfig.from_line('T 1 2 6 SINGLE_TAG {"a":"b c"}')
    assert found == topic.TopicConfig("T", 1, 2, 6)


def test_a_heartbeat_may_give_the_ordinals_of_enums_as_the_cpp_client_does() -> None:
    # What rocketmq-client-cpp 2.1.0 sends, the line end included.
    text = (
        b'{"clientID":"127.0.0.1@1#DEFAULT","consumerDataSet":[{"consumeFromWhere":0,'
        b'"consumeType":1,"groupName":"g","messageModel":1,"subscriptionDataSet":[{"subString":'
        b'"*","subVersion":"1795263176","topic":"orders"}]}]}\n'
    )
    (consumer,) = heartbeat.HeartbeatData.decode(text).consumer_data_set
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "CLUSTERING"
    assert consumer.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert consumer.subscription_data_set[0].sub_version == 1795263176
    with pytest.raises(ValueError, match="2 is none of BROADCASTING, CLUSTERING"):
        heartbeat.HeartbeatData.decode(text.replace(b'"messageModel":1', b'"messageModel":2'))


def test_the_fingerprint_of_a_heartbeat_is_javas() -> None:
    vectors = {each["name"]: each for each in WRITTEN}
    for name in ("HeartbeatData (v1)", "HeartbeatData (v2 fields)"):
        found = heartbeat.HeartbeatData.decode(vectors[name]["text"].encode())
        assert found.fingerprint() == vectors["heartbeat fingerprint"]["fingerprint"]


def test_nulls_and_numbers_as_texts_are_read_as_java_does() -> None:
    found = heartbeat.HeartbeatData.decode(
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g",'
        b'"subscriptionDataSet":[{"topic":"T","tagsSet":null,"codeSet":["7"],"subVersion":"12"}]}]}'
    )
    sub = found.consumer_data_set[0].subscription_data_set[0]
    assert found.producer_data_set == []
    assert (sub.tags_set, sub.code_set, sub.sub_version) == (set(), {7}, 12)


def test_a_queue_that_is_a_key_is_a_message_queue() -> None:
    body = stats.ConsumeStats({MessageQueue("T", "b", 1): stats.OffsetWrapper(9)}, 0.5)
    assert stats.ConsumeStats.decode(body.encode()) == body
    assert stats.ConsumeStats.decode(body.encode(standard=True)) == body


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (topic.TopicConfig, b'{"perm":"x"}', "TopicConfig can't be read: Expected `int`"),
        (topic.TopicConfig, b'{"perm":"x"}', "`$.perm`"),
        (topic.TopicConfig, b'{"readQueueNums":2147483648}', "`$.readQueueNums`"),
        (route.TopicRouteData, b'{"queueDatas":[{"perm":[]}]}', "`$.queueDatas[0].perm`"),
        (heartbeat.HeartbeatData, b"[]", "HeartbeatData can't be read: Expected `object`"),
        (heartbeat.HeartbeatData, b"{", "HeartbeatData can't be read: JSON can't be read"),
        (stats.ConsumeStats, b'{"offsetTable":{{"queueId":"x"}:{}}}', "`$.queueId`"),
        (heartbeat.HeartbeatData, b"[" * 5000 + b"]" * 5000, "nests deeper"),
        (heartbeat.HeartbeatData, b"", "HeartbeatData is missing"),
        (heartbeat.HeartbeatData, None, "HeartbeatData is missing"),
    ],
)
def test_an_ill_typed_body_names_the_body_and_the_field(
    kind: type[Body], text: bytes | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        kind.decode(text)


def test_a_version_after_a_change_counts_on() -> None:
    assert DataVersion(0, 5, 7).following(9) == DataVersion(0, 9, 8)
    assert DataVersion(1, 5, 7).following(9, 2) == DataVersion(2, 9, 8)


@pytest.mark.parametrize("vector", SUBSCRIPTIONS, ids=lambda each: repr(each["expression"]))
def test_an_expression_gives_the_subscription_that_java_builds(vector: dict[str, object]) -> None:
    found = subscription("T", vector["expression"], version=3)  # type: ignore[arg-type]
    expected = {"classFilterMode": False, "topic": "T", "subVersion": 3, **vector["result"]}  # type: ignore[dict-item]
    assert msgspec.json.decode(found.encode()) == expected


@pytest.mark.parametrize("expression", ["||", " || ", " "])
def test_an_expression_without_any_tag_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="has no tag"):
        subscription("T", expression)


def test_an_sql_expression_is_kept_as_it_is_and_may_not_be_empty() -> None:
    found = subscription("T", "a > 1 || b", "SQL92")
    assert (found.sub_string, found.expression_type, found.tags_set) == (
        "a > 1 || b",
        "SQL92",
        set(),
    )
    with pytest.raises(ValueError, match="the SQL92 expression for topic T is empty"):
        subscription("T", "", "SQL92")
