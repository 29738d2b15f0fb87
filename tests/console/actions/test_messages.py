"""Messages are sent, consumed again by a member, cancelled; transactions are checked again."""

import asyncio

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.console.actions.action import State, Unfit
from aerobee.testing import LocalCluster

from ...waiting import LONG
from .runner import ActionRunner


async def test_a_message_is_sent_as_the_form_says(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await runner.do("topic-create", topic="sent")
    form = {
        "topic": "sent",
        "body": "höllo",
        "tag": "a",
        "keys": "k1 k2",
        "properties": "colour=red\nsize=3=4",
        "broker": "broker-b",
        "queue": "2",
    }
    plan = await runner.plan("message-send", **{**form, "body": "b" * 300, "delay": "30"})
    assert plan.notes == [
        "keys: k1 k2",
        "properties: colour=red, size=3=4",
        "delivered after 30 s",
        f"body: {'b' * 200}…",
    ]
    (outcome,) = await runner.do("message-send", **form)
    assert outcome.place == "broker-b, queue 2"
    assert outcome.remark.startswith("SEND_OK: id ")
    (found,) = await runner.admin.query("sent", "k2")
    assert (found.body, found.queue_id) == ("höllo".encode(), 2)
    assert found.properties["TAGS"] == "a"
    assert (found.properties["colour"], found.properties["size"]) == ("red", "3=4")


async def test_what_cannot_be_sent_is_refused(runner: ActionRunner) -> None:
    await runner.do("topic-create", topic="odd")
    for form, what in (
        ({"body": "x", "properties": "no sign"}, "has no ="),
        ({"body": "x", "properties": "=x"}, "'=x' has no name"),
        ({"body": "x", "queue": "9" * 30}, "Queue is 9{30}; give 0 to"),
        ({"body": "x", "properties": "KEYS=1"}, "KEYS"),
        ({"body": "x", "queue": "99"}, "no such queue"),
        ({"body": ""}, "Body is missing"),
        ({"body": "x" * 300_000}, "300,000 characters, the limit is 262,144"),
    ):
        with pytest.raises(Unfit, match=what):
            await runner.plan("message-send", topic="odd", **form)
    with pytest.raises(Unfit, match="is on no broker"):
        await runner.plan("message-send", topic="never", body="x")


async def test_a_member_consumes_a_message_again(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await runner.do("topic-create", topic="again", brokers="broker-b")
    async with Producer(cluster.name_server) as producer:
        receipt = await producer.send(Message("again", b"x"))
    form = {"group": "members", "topic": "again", "id": receipt.offset_msg_id}
    async with (
        Consumer(cluster.name_server, group="members", topics=["again"], start="earliest") as one,
        asyncio.timeout(LONG),
    ):
        message = await one.receive()
        assert message is not None
        await message.ack()
        online = await runner.admin.consumer_connection("members")
        assert online is not None
        client = online.connection_set[0].client_id or ""
        plan = await runner.plan("message-resend", client=client, **form)
        assert plan.refusals == []

        async def take() -> None:
            message = await one.receive()
            assert message is not None
            await message.ack()

        taking = asyncio.create_task(take())
        (outcome,) = await runner.confirm("message-resend", plan, client=client, **form)
        assert outcome.state is State.DONE, outcome
        await taking
        stranger = await runner.plan("message-resend", client="nobody", **form)
        assert "nobody is no member of members at broker-b" in stranger.refusals[0]
    with pytest.raises(Unfit, match="the message is of topic again, not of other"):
        await runner.plan("message-resend", client="x", **form | {"topic": "other"})
    # An id names an address: no other broker is asked.
    forged = "7F000001000000010000000000000000"
    with pytest.raises(Unfit, match=r"127\.0\.0\.1:1, which is no master of this cluster"):
        await runner.plan("message-resend", client="x", **form | {"id": forged})


async def test_a_scheduled_message_is_cancelled_once(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await runner.do("topic-create", topic="later", brokers="broker-a")
    async with Producer(cluster.name_server) as producer:
        receipt = await producer.send(Message("later", b"x", delay=3_600.0))
    form = {"topic": "later", "broker": "broker-a", "id": receipt.msg_id}
    with pytest.raises(Unfit, match="the message is of topic later, not of other"):
        await runner.plan("message-cancel", **form | {"topic": "other"})
    master = (await runner.admin.masters())["broker-a"]
    await runner.admin.update_broker_config(master, {"recallMessageEnable": False})
    plan = await runner.plan("message-cancel", **form)
    assert "recallMessageEnable is false; set it to true first" in plan.refusals[0]
    await runner.do("broker-set", setting="recallMessageEnable", value="true", brokers="broker-a")
    await runner.do("message-cancel", **form)
    with pytest.raises(Unfit, match="was cancelled already"):
        await runner.plan("message-cancel", **form)
    with pytest.raises(Unfit, match="no message none waits for a time on broker-a"):
        await runner.plan("message-cancel", **form | {"id": "none"})
    cluster.advance(hours=2)
    table = (await runner.admin.topic_stats("later")).offset_table
    assert sum(one.max_offset for one in table.values()) == 0


async def test_only_half_messages_are_checked_again(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await runner.do("topic-create", topic="whole", brokers="broker-a")
    async with Producer(cluster.name_server) as producer:
        receipt = await producer.send(Message("whole", b"x"))
    with pytest.raises(Unfit, match="is in topic whole; give the offset id of a half message"):
        await runner.plan("transaction-check", topic="whole", id=receipt.offset_msg_id)
    with pytest.raises(Unfit, match="3 characters"):
        await runner.plan("transaction-check", topic="whole", id="abc")
