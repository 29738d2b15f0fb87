"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from typing import Any

import pytest
from aerobee.client import Admin
from aerobee.testing import LocalCluster

from ...waiting import until
from ..support import Client, Setup, bodies, code_of, resource, setup

NOW = {"seconds": 0}


async def received(proxied: Setup, client: Client, topic: str, **fields: Any) -> Any:
    """A message of a new topic, received by the group "readers"."""
    await proxied.create(topic)
    await proxied.ready(client, topic, "readers")
    await client.send(topic, "one")
    _, (found,) = await client.receive(topic, "readers", **fields)
    return found


async def change(client: Client, message: Any, seconds: int, handle: str = "") -> Any:
    system = message.system_properties
    return await client.call(
        "ChangeInvisibleDuration",
        topic=message.topic,
        group=resource("readers"),
        receipt_handle=handle or system.receipt_handle,
        message_id=system.message_id,
        invisible_duration={"seconds": seconds},
    )


async def test_entries_have_a_status_each_in_the_order_of_the_request(proxied: Setup) -> None:
    client = proxied.client()
    good = await received(proxied, client, "Acked")
    bad = type(good)()
    bad.CopyFrom(good)
    bad.system_properties.receipt_handle = "no handle"
    answer = await client.ack("Acked", "readers", bad, good)
    assert code_of(answer) == "MULTIPLE_RESULTS"
    assert [entry.status.code for entry in answer.entries] == [40013, 20000]
    assert "it has 2 words" in answer.entries[0].status.message
    assert code_of(await client.ack("Acked", "readers")) == "INTERNAL_SERVER_ERROR"


@pytest.mark.parametrize("parted", [False, True])
async def test_a_topic_with_a_percent_sign_is_settled_by_what_its_message_says(
    proxied: Setup, parted: bool
) -> None:
    """Also in the form in which RocketMQ's proxy gives it, whose clients may have kept it."""
    client = proxied.client()
    topic = f"111%222{parted}"
    found = await received(proxied, client, topic, invisible_duration={"seconds": 60})
    assert (found.topic.resource_namespace, found.topic.name) == ("", topic)
    if parted:
        found.topic.resource_namespace, found.topic.name = topic.split("%")
    changed = await change(client, found, 600)
    assert code_of(changed) == "OK"
    answer = await client.call(
        "AckMessage",
        topic=found.topic,
        group=resource("readers"),
        entries=[
            {
                "message_id": found.system_properties.message_id,
                "receipt_handle": changed.receipt_handle,
            }
        ],
    )
    assert code_of(answer) == "OK"
    await proxied.ready(client, topic, "others")
    await client.send(topic, "two")
    _, (other,) = await client.receive(topic, "others")
    forwarded = await client.call(
        "ForwardMessageToDeadLetterQueue",
        topic=found.topic,
        group=resource("others"),
        receipt_handle=other.system_properties.receipt_handle,
        message_id=other.system_properties.message_id,
    )
    assert code_of(forwarded) == "OK"
    proxied.cluster.advance(seconds=900)
    _, messages = await client.receive(topic, "readers", long_polling_timeout=NOW)
    assert bodies(messages) == ["two"]
    _, messages = await client.receive(topic, "others", long_polling_timeout=NOW)
    assert other.body.decode() not in bodies(messages)


async def test_an_expired_handle_is_refused(proxied: Setup) -> None:
    client = proxied.client()
    found = await received(proxied, client, "Expired")
    proxied.cluster.advance(seconds=11)
    answer = await client.ack("Expired", "readers", found)
    assert code_of(answer) == "INVALID_RECEIPT_HANDLE"
    assert "receipt handle is expired" in answer.entries[0].status.message


async def test_a_handle_of_an_unknown_broker_is_refused(proxied: Setup) -> None:
    client = proxied.client()
    found = await received(proxied, client, "Elsewhere")
    handle = found.system_properties.receipt_handle.replace("broker-a", "broker-z")
    found.system_properties.receipt_handle = handle
    answer = await client.ack("Elsewhere", "readers", found)
    assert answer.entries[0].status.message == "cannot find broker broker-z"


async def test_after_a_change_the_first_handle_means_the_newest(proxied: Setup) -> None:
    client = proxied.client()
    found = await received(proxied, client, "Changed")
    answer = await change(client, found, 600)
    assert code_of(answer) == "OK"
    assert answer.receipt_handle != found.system_properties.receipt_handle
    proxied.cluster.advance(seconds=60)  # the first handle is over by now
    assert code_of(await client.ack("Changed", "readers", found)) == "OK"
    proxied.cluster.advance(seconds=900)
    _, messages = await client.receive("Changed", "readers", long_polling_timeout=NOW)
    assert messages == []


async def test_a_message_made_visible_comes_again(proxied: Setup) -> None:
    client = proxied.client()
    found = await received(proxied, client, "Sooner", invisible_duration={"seconds": 600})
    assert code_of(await change(client, found, 1)) == "OK"
    proxied.cluster.advance(seconds=10)
    _, messages = await client.receive("Sooner", "readers")
    assert bodies(messages) == ["one"]


@pytest.mark.parametrize("seconds", [-1, 43_201])
async def test_a_change_has_limits(proxied: Setup, seconds: int) -> None:
    client = proxied.client()
    found = await received(proxied, client, f"Limits{abs(seconds)}")
    assert code_of(await change(client, found, seconds)) == "ILLEGAL_INVISIBLE_TIME"


async def test_an_ack_that_fails_keeps_the_renewed_handle() -> None:
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            client = proxied.client()
            found = await received(proxied, client, "Kept", auto_renew=True)
            keeper = proxied.proxy.service.keeper
            assert len(keeper) == 1
            cluster.advance(seconds=55)
            await keeper.renew_due()
            assert keeper.renewals == 1
            cluster.advance(seconds=30)  # the client's own handle is over
            refused = await client.ack("Nowhere", "readers", found)  # the broker has no such topic
            assert code_of(refused) == "TOPIC_NOT_FOUND"
            assert len(keeper) == 1
            assert code_of(await client.ack("Kept", "readers", found)) == "OK"
            assert len(keeper) == 0


async def test_a_message_can_be_forwarded_to_the_dead_letters(proxied: Setup) -> None:
    client = proxied.client()
    found = await received(proxied, client, "Dead")
    system = found.system_properties
    fields = {"topic": resource("Dead"), "group": resource("readers"), "message_id": "M"}
    answer = await client.call(
        "ForwardMessageToDeadLetterQueue", receipt_handle=system.receipt_handle, **fields
    )
    assert code_of(answer) == "OK"
    async with Admin(proxied.cluster.name_server) as admin:
        # The answer doesn't wait until the name server knows the topic that the broker made.
        async def is_known() -> bool:
            return "%DLQ%readers" in await admin.topics()

        await until(is_known, "the name server does not know the dead letters")
        (queue,) = (await admin.topic_stats("%DLQ%readers")).offset_table.values()
        assert queue.max_offset == 1
        await admin.create_topic("%DLQ%readers", 1, perm=6)
    proxied.cluster.advance(seconds=30)
    _, messages = await client.receive("Dead", "readers", long_polling_timeout=NOW)
    assert messages == []
    short = system.receipt_handle.rpartition(" ")[0]
    answer = await client.call("ForwardMessageToDeadLetterQueue", receipt_handle=short, **fields)
    assert code_of(answer) == "INVALID_RECEIPT_HANDLE"
