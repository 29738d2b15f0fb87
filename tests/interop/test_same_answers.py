"""Requests at the edge are answered by our servers as by the real ones: code, fields, what is kept.

Each side is asked the same, in the same order. Codes must be equal, and answer fields by name and
value but for ids and times; remarks are ours. What a request changed is asked for behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from aerobee.bench.loads import loadgen
from aerobee.harness.clusters import (
    BROKER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.record import decode_all

from .programs import side_by_side

# Different on each side, or each time.
OWN = {"msgId", "transactionId", "popTime", "reviveQid"}
NAMESRV = {100, 101, 102, 105, 219}


class Asked(NamedTuple):
    """One request."""

    code: int
    fields: dict[str, str] | None = None
    body: bytes = b""


def send(topic: str, queue_id: str = "0", body: bytes = b"m", **more: str) -> Asked:
    """SEND_MESSAGE_V2 with nothing but what it needs."""
    fields = {"b": topic, "e": queue_id, "f": "0", "g": "1700000000000", "h": "0"}
    return Asked(codes.SEND_MESSAGE_V2, {"c": "TBW102", "d": "4"} | fields | more, body)


def pull(topic: str, offset: str = "0", group: str = "cg", **more: str) -> Asked:
    """PULL_MESSAGE with nothing but what it needs."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": offset}
    return Asked(
        codes.PULL_MESSAGE,
        fields | {"maxMsgNums": "32", "sysFlag": "4", "subscription": "*"} | more,
    )


def queue(code: int, topic: str, **more: str) -> Asked:
    """A request about one queue, perhaps of a group."""
    return Asked(code, {"topic": topic, "queueId": "0"} | more)


def peek(topic: str = "T", **more: str) -> Asked:
    """PEEK_MESSAGE of a group that has read nothing."""
    fields = {"consumerGroup": "peeker", "topic": topic, "queueId": "0", "maxMsgNums": "32"}
    return Asked(codes.PEEK_MESSAGE, fields | more)


def pop(group: str, **more: str) -> Asked:
    """POP_MESSAGE of a group of its own."""
    fields = {"consumerGroup": group, "topic": "T", "queueId": "0", "maxMsgNums": "1"}
    return Asked(codes.POP_MESSAGE, fields | {"invisibleTime": "60000", "pollTime": "0"} | more)


def beat(group: str, kind: str) -> Asked:
    """HEART_BEAT of a member of this group."""
    consumer = {
        "groupName": group, "consumeType": kind, "messageModel": "CLUSTERING",
        "subscriptionDataSet": [], "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    }  # fmt: skip
    body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}
    return Asked(codes.HEART_BEAT, None, json.dumps(body).encode())


def checked(expression: str) -> Asked:
    """CHECK_CLIENT_CONFIG of an SQL92 expression."""
    wanted = {"topic": "T", "subString": expression, "expressionType": "SQL92"}
    body = {"clientId": "c", "group": "cg", "subscriptionData": wanted}
    return Asked(codes.CHECK_CLIENT_CONFIG, None, json.dumps(body).encode())


SETTINGS: dict[str, str | int] = {**SMALL_FILES, "enablePropertyFilter": "true"}
ORDERED = {
    "topic": "Ordered", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "true",
}  # fmt: skip
END = {  # of no half message, and without a msgId
    "producerGroup": "pg", "tranStateTableOffset": "0", "commitLogOffset": "99999999",
    "commitOrRollback": "8",
}  # fmt: skip
UNUSUAL_POPS: tuple[dict[str, str], ...] = (
    {"maxMsgNums": "0"},
    {"maxMsgNums": "33"},
    {"queueId": "4"},
    {"invisibleTime": "0"},
    {"invisibleTime": "0", "order": "true"},
    {"pollTime": "-1"},
    {"exp": "a is not null", "expType": "SQL92"},
    {"exp": "a >", "expType": "SQL92"},
    {"exp": "a", "expType": "tag"},
)
HANDLE = f"0 1700000000000 60000 0 0 {BROKER_NAME} 0 0"
BATCH = encode_batch([Entry(0, b"1", b""), Entry(0, b"2", b"")])
OFFSET = codes.UPDATE_CONSUMER_OFFSET
CONFIG = codes.UPDATE_BROKER_CONFIG
PROGRESS = codes.QUERY_CONSUMER_OFFSET
CLONE = {"srcGroup": "cg", "destGroup": "copy", "topic": "T", "offline": "true"}

SENDS = (
    send("T"),
    send("T", "+1"),
    send("T", "007"),
    send("T", body=b""),
    send("T", i=properties.encode({"INNER_NUM": "2"}).decode()),
    send("T", i=properties.encode({"DELAY": "soon"}).decode()),
    send("a b"),
    send("t" * 128),
    send("SELF_TEST_TOPIC"),
    send("%RETRY%new", "3"),
    send("%RETRY%old", j="17", l="16"),
    send("%DLQ%new", "3"),
    send("T", m="true", body=BATCH),
    send("T", m="true", body=BATCH[:-1]),
    send("T", m="true", body=b""),
    Asked(codes.SEND_MESSAGE_V2, {"b": "T", "f": "0", "g": "1", "h": "0"}, b"no queue"),
)
STORED = {"T": 4, "%RETRY%new": 1, "%DLQ%new": 1}  # of these by now
ASKED = (
    # pulls
    pull("%DLQ%old", group="reader"),
    pull("T"),
    pull("T", "+1"),
    pull("T", "x"),
    pull("T", "99"),
    pull("T", group="g" * 120),
    pull("T", group="g" * 256),
    pull("T", group="a b"),
    pull("nosuch"),
    # offsets
    queue(OFFSET, "T", consumerGroup="never", commitOffset="1"),
    queue(PROGRESS, "T", consumerGroup="never", setZeroIfNotFound="false"),
    queue(OFFSET, "T", consumerGroup="cg", commitOffset="1"),
    queue(OFFSET, "nosuch", consumerGroup="cg", commitOffset="1"),
    queue(OFFSET, "T", consumerGroup="cg"),
    queue(OFFSET, "T", consumerGroup="copy", commitOffset="1") ,
    Asked(OFFSET, {"topic": "T", "queueId": "3", "consumerGroup": "reader", "commitOffset": "9"}),
    Asked(codes.CLONE_GROUP_OFFSET, CLONE | {"destGroup": "reader"}),
    Asked(PROGRESS, {"topic": "T", "queueId": "3", "consumerGroup": "reader",
                   "setZeroIfNotFound": "false"}),
    queue(PROGRESS, "T", consumerGroup="reader", setZeroIfNotFound="false"),
    # pop
    queue(codes.NOTIFICATION, "nosuch", consumerGroup="cg", pollTime="0"),
    queue(codes.POLLING_INFO, "T", consumerGroup="a b"),
    queue(codes.ACK_MESSAGE, "T", consumerGroup="cg", offset="99", extraInfo=HANDLE),
    queue(codes.ACK_MESSAGE, "nosuch", consumerGroup="cg", offset="0", extraInfo=HANDLE),
    queue(codes.ACK_MESSAGE, "T", consumerGroup="cg", offset="0", extraInfo="x"),
    *(pop(f"popper{number}", **more) for number, more in enumerate(UNUSUAL_POPS)),
    # what a pop would find
    peek(),
    *(peek(maxMsgNums=number) for number in ("0", "1", "-1", "1000")),
    *(peek(queueId=number) for number in ("1", "99", "-1", "-2")),
    *(peek(consumerGroup=name) for name in ("a b", "g" * 256)),
    queue(codes.PEEK_MESSAGE, "T", consumerGroup="peeker"),
    queue(codes.PEEK_MESSAGE, "T", maxMsgNums="32"),
    peek("nosuch"),
    peek("a b"),
    queue(OFFSET, "T", consumerGroup="peeker", commitOffset="1"),
    peek(),
    peek(queueId="-1"),
    queue(OFFSET, "T", consumerGroup="peeker", commitOffset="99"),
    peek(),
    queue(PROGRESS, "T", consumerGroup="peeker"),
    # groups
    Asked(
        codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
        json.dumps({"groupName": "none", "retryQueueNums": 0}).encode(),
    ),
    Asked(
        codes.HEART_BEAT, None,
        json.dumps({
            "clientID": "c", "producerDataSet": [],
            "consumerDataSet": [{
                "groupName": "none", "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING", "subscriptionDataSet": [],
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            }],
        }).encode(),
    ),
    queue(codes.GET_TOPIC_CONFIG, "%RETRY%none"),
    Asked(codes.UNREGISTER_CLIENT, {"consumerGroup": "none"}),
    Asked(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b"{"),
    # pull consumers that are not let in
    beat("before", "CONSUME_ACTIVELY"),
    Asked(CONFIG, None, b"rejectPullConsumerEnable=true"),
    beat("after", "CONSUME_ACTIVELY"),
    beat("pushed", "CONSUME_PASSIVELY"),
    *(pull("T", group=group) for group in ("before", "after", "pushed", "TOOLS_CONSUMER", "cg")),
    Asked(codes.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "after"}),
    Asked(CONFIG, None, b"rejectPullConsumerEnable=false"),
    # topics in order, while the broker takes no writes
    Asked(codes.UPDATE_AND_CREATE_TOPIC, ORDERED),
    Asked(CONFIG, None, b"brokerPermission=4"),
    send("Ordered"),
    send("T"),
    Asked(CONFIG, None, b"brokerPermission=6"),
    send("Ordered"),
    # expressions
    Asked(codes.CHECK_CLIENT_CONFIG),
    *(checked(text) for text in ("a = 5", "a >", "5", "-a", "a AND 'x'", "a = NOT 1", "NULL", "a")),
    Asked(CONFIG, None, b"enablePropertyFilter=false"),
    checked("a = 5"),
    pull("T", subscription="a = 5", expressionType="SQL92", subVersion="0"),
    Asked(CONFIG, None, b"enablePropertyFilter=true"),
    # transactions
    Asked(codes.END_TRANSACTION, END),
    Asked(CONFIG, None, b"transactionCheckInterval=20000"),
    Asked(CONFIG, None, b"transactionOpBatchInterval=2000"),
    # the name server
    Asked(codes.PUT_KV_CONFIG, {"namespace": "n", "key": "k"}),
    Asked(codes.GET_KV_CONFIG, {"namespace": "n", "key": "k"}),
    Asked(codes.GET_KV_CONFIG, {"key": "k"}),
    Asked(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "nosuch"}),
)  # fmt: skip


@pytest.fixture(scope="module")
def clusters(
    java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Cluster]]:
    ours = AerobeeCluster(tmp_path_factory.mktemp("aerobee-answers"), SETTINGS)
    real = JavaCluster(tmp_path_factory.mktemp("java-answers"), SETTINGS, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as started:
        for one in started:
            loadgen.create_topic(one.broker, "T")
        yield started


def seen(answer: Command) -> tuple[int, dict[str, str], list[tuple[bytes, str, str | None]]]:
    """What must be the same of an answer: code, fields, records. An exception has no fields."""
    if answer.code == codes.SYSTEM_ERROR:
        return answer.code, {}, []
    fields = {name: "" if name in OWN else value for name, value in answer.fields().items()}
    records = []
    if answer.code == 0 and not fields.keys().isdisjoint(("nextBeginOffset", "restNum")):
        records = [
            (record.body, record.topic, record.properties.get("DELAY"))
            for record in decode_all(answer.body or b"")
        ]
        if "restNum" in fields:
            records.sort(key=str)  # of several queues, which chance has put in order
    return answer.code, fields, records


async def differences(
    peers: Peers, clusters: tuple[Cluster, Cluster], requests: tuple[Asked, ...]
) -> list[tuple[Asked, list[object]]]:
    """The requests that the two answer differently, with what was seen of each answer."""
    wrong = []
    for asked in requests:
        found: list[object] = []
        for cluster in clusters:
            address = cluster.namesrv if asked.code in NAMESRV else cluster.broker
            answer = await peers.request(address, asked.code, asked.fields, asked.body, 20)
            found.append(seen(answer))
        if found[0] != found[1]:
            wrong.append((asked, found))
    return wrong


async def test_each_request_has_the_answer_of_the_real_servers(
    clusters: tuple[Cluster, Cluster], peers: Peers
) -> None:
    assert await differences(peers, clusters, SENDS) == []
    for cluster in clusters:
        for topic, messages in STORED.items():
            loadgen.wait_stored(cluster.broker, topic, messages)
        loadgen.wait_stored(cluster.broker, "%DLQ%old", 1, 1)
    assert await differences(peers, clusters, ASKED) == []
