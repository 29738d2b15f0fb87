"""Heartbeats, members, notices, offsets: what a consumer group tells and asks."""

import asyncio
import json

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.clients import GetConsumerListByGroupResponseBody
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.heartbeat import CheckClientRequestBody
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command
from aerobee.protocol.headers.offsets import OffsetResponse, TimestampResponse

from ...waiting import LONG
from ..conftest import Caller, Config, Start


class Listener(Caller):
    """A caller that writes down the notices it gets."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.notices: asyncio.Queue[str] = asyncio.Queue()
        code = codes.NOTIFY_CONSUMER_IDS_CHANGED
        self.peers = Peers({code: Row(code, None, self.on_notice)})

    def on_notice(self, header: None, command: Command, connection: object) -> None:
        self.notices.put_nowait(command.fields()["consumerGroup"])

    async def notice(self) -> str:
        return await asyncio.wait_for(self.notices.get(), LONG)


async def member_ids(caller: Caller, group: str = "cg") -> list[str]:
    answer = await caller.ask(codes.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if answer.code:
        return []
    return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list


async def test_a_heartbeat_registers_and_makes_the_retry_topic(
    broker: Broker, caller: Caller
) -> None:
    answer = await caller.heartbeat(topics={"T": "*"}, producer="pg")
    assert (answer.code, answer.fields()["IS_SUPPORT_HEART_BEAT_V2"]) == (0, "true")
    assert await member_ids(caller) == ["c1"]
    retry = broker.topics.get("%RETRY%cg")
    assert retry is not None
    assert (retry.read_queue_nums, retry.perm) == (1, 6)
    assert [m.client_id for m in broker.clients.producer_group("pg").values()] == ["c1"]


async def test_members_hear_of_every_join_and_leave(broker: Broker) -> None:
    one, two = Listener(broker), Listener(broker)
    await one.heartbeat("c1", topics={"T": "*"})
    assert await one.notice() == "cg"
    await two.heartbeat("c2", topics={"T": "*"})
    assert (await one.notice(), await two.notice()) == ("cg", "cg")
    assert sorted(await member_ids(one)) == ["c1", "c2"]
    await two.ask(codes.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "cg"})
    assert await one.notice() == "cg"
    assert await member_ids(one) == ["c1"]
    await two.heartbeat("c2", topics={"T": "*"})
    assert await one.notice() == "cg"
    await two.peers.close()
    assert await one.notice() == "cg"
    assert await member_ids(one) == ["c1"]
    assert one.notices.empty()
    await one.peers.close()


async def test_a_notice_is_on_its_way_before_the_change_is_answered(broker: Broker) -> None:
    one, two = Listener(broker), Listener(broker)
    await one.heartbeat("c1", topics={"T": "*"})
    assert await one.notice() == "cg"
    await two.heartbeat("c2", topics={"T": "*"})
    # Nothing else is waited for: an answer on the same connection comes behind the notice.
    assert len(await member_ids(one)) == 2
    assert one.notices.get_nowait() == "cg"
    await two.ask(codes.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "cg"})
    assert len(await member_ids(one)) == 1
    assert one.notices.get_nowait() == "cg"
    for part in (one, two):
        await part.peers.close()


async def test_a_changed_subscription_is_a_notice_and_a_repeated_one_is_none(
    broker: Broker,
) -> None:
    one = Listener(broker)
    await one.heartbeat(topics={"T": "a"}, version=1)
    assert await one.notice() == "cg"
    await one.heartbeat(topics={"T": "a"}, version=1)
    await one.heartbeat(topics={"T": "b"}, version=2)
    group = broker.clients.consumer_group("cg")
    assert group is not None
    assert group.subscriptions["T"].sub_string == "b"
    await one.heartbeat(topics={"T": "a"}, version=1)
    assert group.subscriptions["T"].sub_string == "b"
    assert one.notices.empty()
    await one.heartbeat(topics={"U": "*"}, version=3)
    assert await one.notice() == "cg"
    assert list(group.subscriptions) == ["U"]
    await one.peers.close()


async def test_broadcasters_and_quiet_groups_are_not_told(broker: Broker) -> None:
    one = Listener(broker)
    broker.groups.put(SubscriptionGroupConfig("quiet", notify_consumer_ids_changed_enable=False))
    await one.heartbeat(group="quiet", topics={"T": "*"})
    await one.heartbeat(group="all", topics={"T": "*"}, model="BROADCASTING")
    await one.heartbeat(group="loud", topics={"T": "*"})
    assert await one.notice() == "loud"
    assert one.notices.empty()
    await one.peers.close()


async def test_a_group_that_may_not_be_made_is_left_out(start: Start, config: Config) -> None:
    broker = await start(config(auto_create_subscription_group=False))
    caller = Caller(broker)
    assert (await caller.heartbeat(topics={"T": "*"})).code == 0
    answer = await caller.ask(codes.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "cg"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, cg")
    await caller.peers.close()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"clientID":5,"consumerDataSet":{}}'])
async def test_a_heartbeat_that_can_not_be_read_is_refused(caller: Caller, body: bytes) -> None:
    answer = await caller.ask(codes.HEART_BEAT, None, body)
    assert answer.code in (codes.INVALID_PARAMETER, codes.SYSTEM_ERROR)
    assert "HeartbeatData" in (answer.remark or "")
    assert (await caller.heartbeat(topics={"T": "*"})).code == 0


async def test_silent_clients_are_put_out(broker: Broker) -> None:
    one, two = Listener(broker), Listener(broker)
    await one.heartbeat("c1", topics={"T": "*"})
    await two.heartbeat("c2", topics={"T": "*"})
    limit = broker.now_ms() + broker.config.channel_expired_timeout
    assert not any(broker.clients.expire(limit - 200_000))
    assert len(set(filter(None, broker.clients.expire(limit)))) == 2
    for part in (one, two):
        await part.peers.close()


async def test_tags_are_a_fine_filter_and_others_are_refused(caller: Caller) -> None:
    fine = CheckClientRequestBody("c", "g", subscription("T", "a || b"))
    assert (await caller.ask(codes.CHECK_CLIENT_CONFIG, None, fine.encode())).code == 0
    sql = CheckClientRequestBody("c", "g", subscription("T", "a > 1", "SQL92"))
    answer = await caller.ask(codes.CHECK_CLIENT_CONFIG, None, sql.encode())
    assert answer.code == codes.SYSTEM_ERROR
    assert "SQL92" in (answer.remark or "")
    assert (await caller.ask(codes.CHECK_CLIENT_CONFIG)).code == 0  # there is nothing to check


async def test_a_heartbeat_makes_the_retry_topic_grow_with_its_groups_number(
    broker: Broker, caller: Caller
) -> None:
    for wanted, queues in ((1, 1), (4, 4), (2, 4)):
        broker.groups.put(SubscriptionGroupConfig("cg", retry_queue_nums=wanted))
        await caller.heartbeat(topics={"T": "*"})
        topic = broker.topics.get("%RETRY%cg")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums) == (queues, queues)


async def offset(caller: Caller, code: int, **fields: object) -> int:
    texts = {name: str(value) for name, value in fields.items()}
    answer = await caller.ask(code, {"topic": "T", "queueId": "0"} | texts)
    assert answer.code == 0, answer.remark
    return answer.header(OffsetResponse).offset


async def test_offsets_are_kept_as_reported(broker: Broker, caller: Caller) -> None:
    await caller.send("T")
    await caller.heartbeat(topics={"T": "*"})
    for value in (7, 3):
        fields = {"topic": "T", "consumerGroup": "cg", "queueId": "0", "commitOffset": str(value)}
        assert (await caller.ask(codes.UPDATE_CONSUMER_OFFSET, fields)).code == 0
        assert await offset(caller, codes.QUERY_CONSUMER_OFFSET, consumerGroup="cg") == value
    broker.offsets.save()
    path = broker.root / "config" / "consumerOffset.json"
    assert json.loads(path.read_text())["offsetTable"] == {"T@cg": {"0": 3}}


async def test_an_unknown_offset_is_not_found_or_the_start_of_a_young_queue(
    caller: Caller,
) -> None:
    await caller.send("T")
    fields = {"topic": "T", "consumerGroup": "new", "queueId": "0", "setZeroIfNotFound": "false"}
    answer = await caller.ask(codes.QUERY_CONSUMER_OFFSET, fields)
    assert answer.code == codes.QUERY_NOT_FOUND
    assert await offset(caller, codes.QUERY_CONSUMER_OFFSET, consumerGroup="new") == 0


async def test_an_unknown_offset_in_a_queue_without_messages_is_not_found(caller: Caller) -> None:
    await caller.send("T")
    for queue in ("1", "2"):
        fields = {"topic": "T", "consumerGroup": "new", "queueId": queue}
        answer = await caller.ask(codes.QUERY_CONSUMER_OFFSET, fields)
        assert answer.code == codes.QUERY_NOT_FOUND


async def test_offsets_of_nothing_known_are_refused(broker: Broker, caller: Caller) -> None:
    fields = {"topic": "no", "consumerGroup": "cg", "queueId": "0", "commitOffset": "1"}
    answer = await caller.ask(codes.UPDATE_CONSUMER_OFFSET, fields)
    assert (answer.code, answer.remark) == (
        codes.SUBSCRIPTION_GROUP_NOT_EXIST,
        "Group cg not exist! Create it",
    )
    assert broker.groups.get("cg") is None, "an offset alone makes no group"
    await caller.heartbeat(topics={"no": "*"})
    answer = await caller.ask(codes.UPDATE_CONSUMER_OFFSET, fields)
    assert (answer.code, answer.remark) == (codes.TOPIC_NOT_EXIST, "Topic no not exist! Create it")


async def test_the_bounds_of_a_queue_and_the_place_of_a_time(
    broker: Broker, caller: Caller
) -> None:
    assert await offset(caller, codes.GET_MAX_OFFSET) == 0
    assert await offset(caller, codes.GET_MIN_OFFSET) == 0
    before = broker.now_ms()
    for _ in range(3):
        await caller.send("T")
    assert await offset(caller, codes.GET_MAX_OFFSET) == 3
    assert await offset(caller, codes.GET_MIN_OFFSET) == 0
    assert await offset(caller, codes.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=before) == 0
    later = broker.now_ms() + 60_000
    assert await offset(caller, codes.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=later) == 3
    fields = {"topic": "T", "queueId": "0"}
    first = await caller.ask(codes.GET_EARLIEST_MSG_STORETIME, fields)
    assert before <= first.header(TimestampResponse).timestamp_ms <= broker.now_ms()
    none = await caller.ask(codes.GET_EARLIEST_MSG_STORETIME, fields | {"queueId": "2"})
    assert none.header(TimestampResponse).timestamp_ms == -1


async def test_a_group_without_retry_queues_has_a_retry_topic_without_queues(
    broker: Broker, caller: Caller
) -> None:
    broker.groups.put(SubscriptionGroupConfig("none", retry_queue_nums=0))
    await caller.heartbeat(group="none", topics={"T": "*"})
    topic = broker.topics.get("%RETRY%none")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (0, 0)
    assert (await caller.send("%RETRY%none")).code == codes.INVALID_PARAMETER


async def test_the_list_of_members_is_kept_and_follows_who_comes_leaves_and_is_renamed(
    broker: Broker, caller: Caller
) -> None:
    other = Caller(broker)

    async def listed() -> list[str]:
        answer = await caller.ask(codes.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "cg"})
        found = GetConsumerListByGroupResponseBody.decode(answer.body)
        group = broker.clients.consumer_group("cg")
        assert group is not None
        assert group.sorted_ids() == sorted(found.consumer_id_list)
        assert group.id_list() is group.id_list()
        return found.consumer_id_list

    await caller.heartbeat("c1", topics={"T": "*"})
    assert await listed() == ["c1"]
    await other.heartbeat("c0", topics={"T": "*"})
    assert await listed() == ["c1", "c0"]
    await caller.heartbeat("renamed", topics={"T": "*"})
    assert await listed() == ["renamed", "c0"]
    await other.ask(codes.UNREGISTER_CLIENT, {"clientID": "c0", "consumerGroup": "cg"})
    assert await listed() == ["renamed"]
    await other.peers.close()
