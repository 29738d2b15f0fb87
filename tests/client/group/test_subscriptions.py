"""Subscriptions: tag expressions and conditions, checked here and by a broker; namespaces."""

import pytest
from aerobee.client import Consumer, LitePullConsumer, by_sql, by_tag
from aerobee.client.errors import ClientError
from aerobee.client.group.membership import Membership
from aerobee.client.group.subscriptions import subscriptions_of
from aerobee.protocol import codes
from aerobee.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from aerobee.protocol.command import OK, Response

from ...waiting import LONG
from ..fakes import FakeCluster, until
from ..shelf import Shelf


async def test_a_condition_is_judged_by_a_broker_and_travels_with_its_kind(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.broker.answers[codes.CHECK_CLIENT_CONFIG] = lambda *_: OK
    topics = {"orders": by_sql("amount > 10")}
    async with Consumer(fake.address, group="g", topics=topics, client_id="b"):
        await until(lambda: bool(shelf.pulls_of("orders")))
    (check,) = fake.broker.requests[codes.CHECK_CLIENT_CONFIG]
    body = CheckClientRequestBody.decode(check.body)
    assert (body.client_id, body.group) == ("b", "g")
    data = HeartbeatData.decode(fake.broker.requests[codes.HEART_BEAT][-1].body)
    kinds = {
        each.topic: (each.expression_type, each.sub_string, each.tags_set)
        for each in data.consumer_data_set[0].subscription_data_set
    }
    assert kinds["orders"] == ("SQL92", "amount > 10", set())
    pull = next(pull for pull in shelf.pulls if pull.topic == "orders")
    assert pull.expression_type == "SQL92"
    shelf.pulls.clear()
    fake.broker.members.clear()
    async with LitePullConsumer(fake.address, group="g", client_id="c") as lite:
        await lite.subscribe("orders", by_sql("amount > 20"))
        await until(lambda: bool(shelf.pulls))
    assert (shelf.pulls[0].subscription, shelf.pulls[0].expression_type) == (
        "amount > 20",
        "SQL92",
    )
    assert shelf.pulls[0].sub_version > 0


@pytest.mark.parametrize(
    "remark", ["encountered LIKE", "not supported; set enablePropertyFilter=true in the settings"]
)
async def test_a_condition_that_the_broker_refuses_stops_the_start_with_the_remedy_once(
    fake: FakeCluster, shelf: Shelf, remark: str
) -> None:
    said = Response(codes.SUBSCRIPTION_PARSE_FAILED, remark=remark)
    fake.broker.answers[codes.CHECK_CLIENT_CONFIG] = lambda *_: said
    consumer = Consumer(fake.address, group="g", topics={"orders": by_sql("a LIKE 'b'")})
    with pytest.raises(ClientError, match=r"LIKE.*is not accepted") as refused:
        await consumer.start()
    assert remark in str(refused.value)
    assert str(refused.value).count("enablePropertyFilter=true") == 1
    await consumer.close()


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (by_sql(""), "SQL92 expression for topic orders is empty"),
        (by_tag("||"), "no tag"),
        (5, "is 5"),
    ],
)
def test_an_odd_expression_is_refused(expression: object, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        subscriptions_of("g", {"orders": expression})


async def test_a_namespace_is_added_on_the_way_out_and_taken_off_on_the_way_in(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics = {"ns%orders": 1, "%RETRY%ns%g": 1}
    shelf.put("ns%orders", 0, b"0")
    shelf.put("%RETRY%ns%g", 0, b"1", raw_properties=b"RETRY_TOPIC\x01ns%orders\x02")
    async with Consumer(
        fake.address, group="g", topics=["orders"], start="earliest", namespace="ns"
    ) as consumer:
        for _ in range(2):
            message = await consumer.receive(LONG)
            assert message is not None
            assert message.topic == "orders"
            await message.nack()
        assert consumer.group == "ns%g"
    assert {(back.group, back.origin_topic) for back in shelf.backs} == {("ns%g", "ns%orders")}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group": "DEFAULT_CONSUMER"}, "stands for no name"),
        ({"group": ""}, "is blank"),
        ({"group": "g", "model": "sharing"}, "'clustering' or 'broadcasting'"),
        ({"group": "g", "strategy": 5}, "give a name or a function"),
        ({"group": "g", "strategy": "CONSISTENT"}, "CONSISTENT_HASH"),
    ],
)
def test_odd_memberships_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        Membership.read(None, **options)  # type: ignore[arg-type]


def test_an_instance_name_makes_the_client_id() -> None:
    named = Membership.read("127.0.0.1:1", "g", instance="here")
    assert named.client_id is not None
    assert named.client_id.endswith("@here")
    assert Membership.read("127.0.0.1:1", "g").client_id is None
