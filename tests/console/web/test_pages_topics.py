"""The page of a group on a broker that keeps only its last member's subscription, as RocketMQ's
do."""

from collections.abc import AsyncIterator

import pytest
from aerobee.client.base.identity import now_ms
from aerobee.console.clusters import collector
from aerobee.console.messages.waiting import HALF_TOPIC
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.clients import Connection, ConsumerConnection
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from aerobee.protocol.bodies.running import ConsumerRunningInfo
from aerobee.protocol.bodies.stats import ConsumeStats, OffsetWrapper
from aerobee.protocol.bodies.subscription import SubscriptionData
from aerobee.protocol.bodies.summaries import GroupSummaries, GroupSummary, GroupTopicSummary
from aerobee.protocol.command import Command, Response
from aerobee.protocol.message.record import decode_record, encode_record

from ...client.fakes import pulled, record, until
from ..fake_cluster import Shop, by_group
from .site import Parsed, Site

Wanted = dict[str, dict[str, str] | None]


class Members(Shop):
    """A group with members; `wanted` is what each subscribes to, None for one that says nothing."""

    def __init__(self) -> None:
        super().__init__("shop", is_java=True)
        self.wanted: Wanted = {}
        answers = self.broker.answers
        answers[codes.GET_CONSUMER_CONNECTION_LIST] = self._online
        answers[codes.GET_CONSUMER_RUNNING_INFO] = self._running

    def _online(self, command: Command, _: object) -> Response:
        if command.fields()["consumerGroup"] != "shop":
            return Response(codes.CONSUMER_NOT_ONLINE, remark="not online")
        found = [Connection(one, "127.0.0.1:1", "JAVA", 3) for one in self.wanted]
        return Response(body=ConsumerConnection(found, {}, "PUSH", "CLUSTERING").encode())

    def _running(self, command: Command, _: object) -> Response:
        wanted = self.wanted[command.fields()["clientId"]]
        if wanted is None:
            return Response(codes.SYSTEM_ERROR, remark="it does not answer")
        own = [SubscriptionData(topic, text) for topic, text in wanted.items()]
        retries = SubscriptionData("%RETRY%shop", "*")
        return Response(body=ConsumerRunningInfo(subscription_set=[*own, retries]).encode())


@pytest.fixture
async def members() -> AsyncIterator[Members]:
    members = Members()
    await members.start()
    yield members
    await members.stop()


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"a": {"x": "t1"}, "b": {"x": "t2", "y": "*"}}, "a: x:t1; b: x:t2 y:*"),
        ({"a": {"x": "t1"}, "b": {}, "c": None}, "a: x:t1; b: -"),
        ({"a": {"x": "t1", "y": "*"}, "b": {"y": "*", "x": "t1"}}, ""),
        ({"a": {"x": "t1"}, "b": None}, None),
        ({"a": {"x": "t1"}}, ""),
        ({}, ""),
        ({str(n): {"x": str(n)} for n in range(40)}, None),  # too many to be asked
    ],
)
async def test_members_that_subscribe_differently_are_named(
    members: Members, wanted: Wanted, says: str | None
) -> None:
    members.wanted = wanted
    async with Site({"main": members.address}) as site:
        assert (await site.data("group", name="shop"))["group"]["differing"] == says
        text = Parsed(await site.html("group", name="shop")).text
        assert ("Its members subscribe differently" in text) is bool(says)
        assert ("Whether its members subscribe differently is not known" in text) is (says is None)


@pytest.mark.parametrize(
    ("wanted", "says"), [({"a": {}, "b": {}}, "not known"), ({"a": {}}, "agree"), ({}, "no member")]
)
async def test_the_list_never_leaves_it_open_whether_subscriptions_differ(
    members: Members, wanted: Wanted, says: str
) -> None:
    members.wanted = wanted
    async with Site({"main": members.address}) as site:
        collector = site.console.clusters.by_name["main"].collector
        await until(lambda: collector.groups()["shop"].at_ms is not None)
        (row,) = (await site.data("groups"))["list"]["rows"]
        assert row["differing"] == (None if says == "not known" else "")
        cells = Parsed(await site.html("groups")).text.split("Subscriptions")[1]
        assert says in cells


@pytest.mark.parametrize(("wanted", "is_at_most"), [("*", False), ("a", True), (None, True)])
async def test_the_lag_of_a_filter_that_is_not_counted_is_at_most_that(
    wanted: str | None, is_at_most: bool
) -> None:
    shop = Shop("shop", is_java=True)
    table = {"shop": SubscriptionData("shop", wanted or "")}
    online = ConsumerConnection([Connection("c", "c", "JAVA", 3)], table, "PUSH", "CLUSTERING")
    answer = by_group({"shop": online} if wanted else {})
    shop.broker.answers[codes.GET_CONSUMER_CONNECTION_LIST] = answer
    await shop.start()
    async with Site({"main": shop.address}) as site:
        collector = site.console.clusters.by_name["main"].collector
        await until(lambda: collector.groups()["shop"].at_ms is not None)
        for page in ("group", "topic"):
            text = Parsed(await site.html(page, name="shop")).text
            assert ("at most 3" in text) is is_at_most, page
    await shop.stop()


async def test_a_group_that_nobody_reads_for_is_not_drained_and_a_broker_is_marked_once() -> None:
    shop = Shop("shop", is_java=True)
    answers = shop.broker.answers
    answers[codes.GET_CONSUMER_CONNECTION_LIST] = by_group({})
    await shop.start()
    async with Site({"main": shop.address}) as site:
        collector = site.console.clusters.by_name["main"].collector
        await until(lambda: collector.groups()["shop"].at_ms is not None)
        text = " ".join(Parsed(await site.html("group", name="shop")).text.split())
        assert "not: no member is online" in text
        assert "not now" in Parsed(await site.html("groups")).text
        for code in (codes.GET_CONSUME_STATS, codes.GET_CONSUMER_CONNECTION_LIST):
            answers[code] = lambda *_: Response(codes.SYSTEM_ERROR, remark="it is tired")
        assert len((await site.data("group", name="shop"))["faults"]) == 1
        assert (await site.html("group", name="shop")).count("it is tired") == 1
    await shop.stop()


async def test_a_form_offers_no_group_of_the_system(shop: Shop) -> None:
    own = ("CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER")
    groups = {name: SubscriptionGroupConfig(name) for name in (*own, "readers")}
    table = SubscriptionGroupWrapper(groups)
    answers = shop.broker.answers
    answers[codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = lambda *_: Response(body=table.encode())
    summaries = [GroupSummary(name, True, 1, name, name, 2, name) for name in groups]
    body = GroupSummaries(summaries).encode()
    answers[codes.GET_GROUP_SUMMARIES] = lambda *_: Response(body=body)
    async with Site({"main": shop.address}) as site:
        page = Parsed(await site.html("act/group-delete"))
    offered = {attrs.get("value") for tag, attrs in page.elements if tag == "option"}
    assert "readers" in offered
    assert not offered & {*own}


async def test_what_a_broker_that_is_away_has_is_not_known(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "SAMPLE_SECONDS", 0.1)
    async with Site({"main": shop.address}) as site:
        found = await site.data("topic", name="orders")
        assert (found["topic"]["rate_in"], len(found["queues"])) == (0.5, 1)
        await shop.broker.stop()
        watched = site.console.clusters.by_name["main"].collector
        await until(lambda: watched.topics()["orders"].rate_in is None)
        found = await site.data("topic", name="orders")
        assert (found["messages"], found["settings"], len(found["faults"])) == (None, None, 1)
        queues = Parsed(await site.html("topic", name="orders")).text.split("Queues")[1]
        assert "Not known: no broker of this topic answered." in queues
        assert "Nothing is here." not in queues
        row = (await site.data("group", name="orders"))["group"]
        assert (row["rate_out"], row["topics"][0]["rate_out"], row["drain_s"]) == (None,) * 3
        (broker,) = (await site.data("brokers"))["brokers"]
        assert (broker["rate_in"], broker["rate_out"]) == (None, None)


async def test_a_transaction_is_open_since_it_was_sent_however_often_it_is_checked(
    shop: Shop,
) -> None:
    now = now_ms()
    half = decode_record(record(0, b"half", HALF_TOPIC, b"REAL_TOPIC\x01shop\x02"))
    half.born_ms, half.store_ms = now - 3_600_000, now - 5_000
    checked = encode_record(half)

    def pull(command: Command, _: object) -> Response:
        fields = command.fields()
        if (fields["topic"], fields["queueOffset"]) != (HALF_TOPIC, "0"):
            return pulled([], 1, codes.PULL_NOT_FOUND)
        return pulled([checked], 1)

    shop.topics[HALF_TOPIC] = 1
    shop.broker.answers[codes.PULL_MESSAGE] = pull
    async with Site({"main": shop.address}) as site:
        (row,) = (await site.data("transactions"))["rows"]
        assert (row["born_ms"], row["stored_ms"]) == (now - 3_600_000, now - 5_000)
        text = Parsed(await site.html("transactions")).text
        assert "1 h" in text.split("Open for")[-1]


@pytest.mark.parametrize(
    ("wanted", "lag", "says"), [(None, 7, "at most 7"), ("*", 7, "7 messages"), ("a", 2, "2 mess")]
)
async def test_the_lag_of_a_group_is_that_of_its_queues_on_the_page(
    wanted: str | None, lag: int, says: str
) -> None:
    """The sample is older, and counts what a filter takes while a member is there to tell it."""
    shop = Shop("shop")
    answers = shop.broker.answers
    table = {"shop": SubscriptionData("shop", wanted or "")}
    online = ConsumerConnection([Connection("c", "c", "JAVA", 3)], table, "PUSH", "CLUSTERING")
    answers[codes.GET_CONSUMER_CONNECTION_LIST] = by_group({"shop": online} if wanted else {})
    summary = GroupSummary("shop", True, 1 if wanted else 0, "PUSH", "CLUSTERING", 0, "")
    summary.topics = [GroupTopicSummary("shop", False, 2, 0, 5_000, 0.5, not wanted)]
    body = GroupSummaries([summary]).encode()
    answers[codes.GET_GROUP_SUMMARIES] = lambda *_: Response(body=body)
    offsets = {
        MessageQueue("shop", "shop", 0): OffsetWrapper(5, 2, 2, 66_000),
        MessageQueue("shop", "shop", 1): OffsetWrapper(4, 0, 0, 0),  # it never read this one
    }
    told = ConsumeStats(offsets, 1.0).encode()
    answers[codes.GET_CONSUME_STATS] = lambda *_: Response(body=told)
    await shop.start()
    async with Site({"main": shop.address}) as site:
        found = await site.data("group", name="shop")
        assert sum(one["lag"] for one in found["queues"]) == 7
        (in_topic,) = found["group"]["topics"]
        assert (found["group"]["lag"], in_topic["lag"]) == (lag, lag)
        text = " ".join(Parsed(await site.html("group", name="shop")).text.split())
        assert says in text
        assert ("that the group's filter skips, too" in text) is (wanted == "a")
    await shop.stop()
