"""Requests about consumer groups and their members, with the texts of a real broker."""

from pathlib import Path

import pytest
from aerobee.broker.groups import groups as groups_module
from aerobee.protocol import codes
from aerobee.protocol.bodies.clients import GroupList, ProducerTableInfo
from aerobee.protocol.bodies.group import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from aerobee.protocol.bodies.topic import TopicList
from aerobee.protocol.names import GROUP_CHARS_MAX

from ..parts import ADDRESS, START_MS, Parts, refused

UPDATE = codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
UPDATE_LIST = codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


# --- 200, 225 -------------------------------------------------------------------------------------


def test_a_group_is_made_and_replaced_as_a_whole(parts: Parts) -> None:
    first = SubscriptionGroupConfig("G", retry_max_times=3, consume_broadcast_enable=False)
    reply = parts.ask(UPDATE, first.encode())
    assert (reply.code, reply.remark) == (0, None)
    assert parts.groups.get("G") == first
    parts.ask(UPDATE, b'{"groupName":"G","retryQueueNums":2}')
    assert parts.groups.get("G") == SubscriptionGroupConfig("G", retry_queue_nums=2)


def test_a_list_of_groups_is_made(parts: Parts) -> None:
    wanted = [SubscriptionGroupConfig("G"), SubscriptionGroupConfig("H", retry_max_times=1)]
    assert parts.ask(UPDATE_LIST, SubscriptionGroupList(wanted).encode()).code == 0
    assert [parts.groups.get(name) for name in "GH"] == wanted


@pytest.mark.parametrize("name", ["", "a b", "../g", "g" * (GROUP_CHARS_MAX + 1)])
def test_a_bad_name_is_refused(parts: Parts, name: str) -> None:
    wanted = SubscriptionGroupConfig(name)
    assert refused(parts, UPDATE, wanted.encode()).code == codes.INVALID_PARAMETER
    both = SubscriptionGroupList([SubscriptionGroupConfig("Good"), wanted])
    assert refused(parts, UPDATE_LIST, both.encode()).code == codes.INVALID_PARAMETER
    assert parts.groups.get("Good") is None


def test_a_group_has_no_attributes(parts: Parts) -> None:
    wanted = SubscriptionGroupConfig("G", attributes={"+colour": "red"})
    refusal = refused(parts, UPDATE, wanted.encode())
    assert refusal.code == codes.SYSTEM_ERROR
    assert refusal.remark == "unsupported key: colour; groups have no attributes"


def test_more_groups_than_the_limit_are_refused_together(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = len(parts.groups.all())
    monkeypatch.setattr(groups_module, "GROUPS_MAX", there + 1)
    both = SubscriptionGroupList([SubscriptionGroupConfig(name) for name in "GH"])
    refusal = refused(parts, UPDATE_LIST, both.encode())
    assert refusal.remark == f"there are {there} groups, the limit is {there + 1}; delete some"
    assert parts.groups.get("G") is None


@pytest.mark.parametrize("body", [None, b"", b"{", b"7", b'{"groupName":{}}'])
def test_a_group_that_can_not_be_read_is_refused(parts: Parts, body: bytes | None) -> None:
    refusal = refused(parts, UPDATE, body)
    assert refusal.code == codes.SYSTEM_ERROR
    assert "SubscriptionGroupConfig" in refusal.remark


def test_a_list_that_is_too_long_is_refused(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    from aerobee.broker.admin import groups as admin_groups

    monkeypatch.setattr(admin_groups, "GROUPS_PER_REQUEST_MAX", 1)
    body = SubscriptionGroupList([SubscriptionGroupConfig(n) for n in "GH"]).encode()
    remark = refused(parts, UPDATE_LIST, body).remark
    assert remark == "2 groups in one request, the limit is 1; send several"


# --- 201, 352, 207, 353 ---------------------------------------------------------------------------


def test_all_groups_come_with_their_version(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("G"))
    body = parts.ask(codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert isinstance(body, bytes)
    table = SubscriptionGroupWrapper.decode(body)
    assert table.subscription_group_table == parts.groups.all()
    assert table.data_version == parts.groups.version
    assert table.forbidden_table == {}


def test_one_group_is_described_as_java_does(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("CG"))
    assert parts.ask(codes.GET_SUBSCRIPTIONGROUP_CONFIG, group="CG").body == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        b'"groupName":"CG","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}'
    )


def test_an_unknown_group_is_made_when_it_is_asked_for_if_it_may_be(tmp_path: Path) -> None:
    open_parts, closed = (
        Parts(tmp_path / "open"),
        Parts(tmp_path / "closed", auto_create_subscription_group=False),
    )
    try:
        assert open_parts.ask(codes.GET_SUBSCRIPTIONGROUP_CONFIG, group="G").code == 0
        assert open_parts.groups.get("G") is not None
        refusal = refused(closed, codes.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
        assert (refusal.code, refusal.remark) == (26, "No group in this broker: G; create it")
        assert refused(open_parts, codes.GET_SUBSCRIPTIONGROUP_CONFIG, group="a b").code == 26
    finally:
        open_parts.store.close()
        closed.store.close()


def test_a_deleted_group_keeps_its_offsets_unless_they_go_too(parts: Parts) -> None:
    for name in "GH":
        parts.groups.put(SubscriptionGroupConfig(name))
        parts.offsets.commit("T", name, 0, 5)
        parts.stats.gets("T", name).messages += 1
    parts.ask(codes.DELETE_SUBSCRIPTIONGROUP, groupName="G")
    parts.ask(codes.DELETE_SUBSCRIPTIONGROUP, groupName="H", cleanOffset=True)
    assert (parts.groups.get("G"), parts.groups.get("H")) == (None, None)
    assert parts.offsets.groups_of("T") == ["G"]
    assert parts.stats.item("GROUP_GET_NUMS", "T@G") is None


FORBIDDEN = codes.UPDATE_AND_GET_GROUP_FORBIDDEN


def test_a_group_can_be_kept_from_a_topic(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("G"))
    reply = parts.ask(FORBIDDEN, group="G", topic="T")
    assert reply.remark == ""
    assert reply.body == b'{"group":"G","readable":true,"topic":"T"}'
    body = parts.ask(FORBIDDEN, group="G", topic="T", readable=False).body
    assert body == b'{"group":"G","readable":false,"topic":"T"}'
    assert parts.groups.forbids("G", "T")
    assert not parts.groups.forbids("G", "U")
    # The bit is the one of the read permission: a Java broker that takes the store over reads it.
    assert b'"forbiddenTable":{"G":{"T":4}}' in b"".join(parts.groups.pieces(standard=True))
    parts.ask(FORBIDDEN, group="G", topic="T", readable=True)
    assert not parts.groups.forbids("G", "T")


def test_a_deleted_group_is_kept_from_nothing_when_it_comes_again(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("G"))
    parts.ask(FORBIDDEN, group="G", topic="T", readable=False)
    parts.ask(codes.DELETE_SUBSCRIPTIONGROUP, groupName="G")
    parts.groups.put(SubscriptionGroupConfig("G"))
    assert not parts.groups.forbids("G", "T")


def test_only_a_group_that_is_there_is_kept_from_a_legal_topic(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = refused(parts, FORBIDDEN, group="G", topic="T", readable=False)
    assert refusal.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
    parts.groups.put(SubscriptionGroupConfig("G"))
    refusal = refused(parts, FORBIDDEN, group="G", topic="a b", readable=False)
    assert refusal.code == codes.INVALID_PARAMETER
    monkeypatch.setattr(groups_module, "FORBIDDEN_TOPICS_MAX", 1)
    parts.ask(FORBIDDEN, group="G", topic="T", readable=False)
    refusal = refused(parts, FORBIDDEN, group="G", topic="U", readable=False)
    assert (
        refusal.remark == "group G has settings for 1 topics, the limit is 1; allow it some again"
    )


# --- 203, 204, 328 --------------------------------------------------------------------------------


def test_the_members_of_a_consumer_group_are_listed_as_java_does(parts: Parts) -> None:
    parts.join("CG", {"AutoT": "*"}, language="PYTHON", address="127.0.0.1:60318")
    reply = parts.ask(codes.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
    assert reply.body == (
        b'{"connectionSet":[{"clientAddr":"127.0.0.1:60318","clientId":"c1",'
        b'"language":"PYTHON","version":479}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"subscriptionTable":{"AutoT":{"classFilterMode":false,"codeSet":[],'
        b'"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"AutoT"}}}'
    )


def test_a_group_without_members_is_not_online(parts: Parts) -> None:
    refusal = refused(parts, codes.GET_CONSUMER_CONNECTION_LIST, consumerGroup="NOPE")
    assert (refusal.code, refusal.remark) == (206, "the consumer group[NOPE] not online")


def test_the_producers_of_a_group_are_listed_as_java_does(parts: Parts) -> None:
    parts.join(None, producer="PG", language="PYTHON", address="127.0.0.1:60318")
    assert parts.ask(codes.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG").body == (
        b'{"connectionSet":[{"clientAddr":"127.0.0.1:60318","clientId":"c1",'
        b'"language":"PYTHON","version":479}]}'
    )


def test_a_group_without_producers_does_not_exist(parts: Parts) -> None:
    refusal = refused(parts, codes.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
    assert (refusal.code, refusal.remark) == (1, "the producer group[PG] not exist")


def test_all_producers_are_listed_by_group(parts: Parts) -> None:
    assert parts.ask(codes.GET_ALL_PRODUCER_INFO).body == b'{"data":{}}'
    parts.join(None, producer="PG", client_id="a", address="127.0.0.1:1")
    parts.join(None, producer="PG", client_id="b", address="127.0.0.1:2")
    body = parts.ask(codes.GET_ALL_PRODUCER_INFO).body
    assert isinstance(body, bytes)
    (found,) = ProducerTableInfo.decode(body).data.values()
    assert [(one.client_id, one.remote_ip) for one in found] == [
        ("a", "/127.0.0.1:1"),
        ("b", "/127.0.0.1:2"),
    ]
    assert found[0].last_update_timestamp == START_MS


# --- 300, 343, 345 --------------------------------------------------------------------------------


def test_a_topics_groups_are_those_that_read_it_now_or_did(parts: Parts) -> None:
    parts.join("Live", {"T": "*"})
    parts.join("Elsewhere", {"U": "*"}, client_id="c2")
    parts.offsets.commit("T", "Past", 0, 1)
    parts.offsets.commit("T", "Live", 0, 1)
    body = parts.ask(codes.QUERY_TOPIC_CONSUME_BY_WHO, topic="T").body
    assert isinstance(body, bytes)
    assert GroupList.decode(body).group_list == ["Live", "Past"]


def test_a_groups_topics_are_those_with_offsets(parts: Parts) -> None:
    parts.offsets.commit("U", "G", 0, 1)
    parts.offsets.commit("T", "G", 0, 1)
    parts.offsets.commit("V", "H", 0, 1)
    body = parts.ask(codes.QUERY_TOPICS_BY_CONSUMER, group="G").body
    assert isinstance(body, bytes)
    found = TopicList.decode(body)
    assert (found.topic_list, found.broker_addr) == (["T", "U"], ADDRESS)


def test_a_subscription_is_told_when_there_is_one(parts: Parts) -> None:
    code = codes.QUERY_SUBSCRIPTION_BY_CONSUMER
    assert parts.ask(code, group="G", topic="T").body == b'{"group":"G","topic":"T"}'
    parts.join("G", {"T": "a"})
    assert parts.ask(code, group="G", topic="T").body == (
        b'{"group":"G","subscriptionData":{"classFilterMode":false,"codeSet":[97],'
        b'"expressionType":"TAG","subString":"a","subVersion":1,"tagsSet":["a"],"topic":"T"},'
        b'"topic":"T"}'
    )
    assert parts.ask(code, group="G").body == b'{"group":"G"}'
