"""SendMessage: entries, queues, types, and what is refused."""

import asyncio

from aerobee.client import Admin
from aerobee.proxy.messages.status import Code
from aerobee.testing import LocalCluster

from ..support import TYPES, Setup, bodies, code_of, message, setup

DAY_SECONDS = 86_400


async def test_a_batch_has_an_entry_for_each_message(proxied: Setup) -> None:
    await proxied.create("Batched")
    client = proxied.client()
    await proxied.ready(client, "Batched", "readers")
    answer = await client.send("Batched", "one", "two", "three")
    assert code_of(answer) == "OK"
    assert len({entry.message_id for entry in answer.entries}) == 3
    found: list[str] = []
    while len(found) < 3:
        _, messages = await client.receive("Batched", "readers")
        found += bodies(messages)
    assert sorted(found) == ["one", "three", "two"]


async def test_a_request_without_messages_or_with_two_topics_is_refused(proxied: Setup) -> None:
    client = proxied.client()
    assert (await client.call("SendMessage")).status.message == "no message to send"
    answer = await client.call("SendMessage", messages=[message("A", "x"), message("B", "x")])
    assert (code_of(answer), answer.status.message) == (
        "MESSAGE_CORRUPTED",
        "different message topic",
    )


async def test_the_type_of_a_message_must_be_that_of_its_topic(proxied: Setup) -> None:
    await proxied.create("OnlyFifo", "FIFO")
    client = proxied.client()
    answer = await client.send("OnlyFifo", "x")
    assert code_of(answer) == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    assert answer.status.message == (
        "TopicMessageType validate failed, the expected type is FIFO, but actual type is NORMAL"
    )
    assert code_of(await client.send("OnlyFifo", "x", message_group="g")) == "OK"


async def test_messages_of_a_group_are_in_one_queue(proxied: Setup) -> None:
    await proxied.create("Grouped", "FIFO", queues=8)
    client = proxied.client()
    for _ in range(6):
        await client.send("Grouped", "x", message_group="one")
    async with Admin(proxied.cluster.name_server) as admin:
        table = (await admin.topic_stats("Grouped")).offset_table
    assert sorted(each.max_offset for each in table.values()) == [0] * 7 + [6]


async def test_messages_without_a_group_go_to_all_queues(proxied: Setup) -> None:
    await proxied.create("Spread", queues=4)
    client = proxied.client()
    await asyncio.gather(*(client.send("Spread", "x") for _ in range(8)))
    async with Admin(proxied.cluster.name_server) as admin:
        table = (await admin.topic_stats("Spread")).offset_table
    assert [each.max_offset for each in table.values()] == [2] * 4


async def test_a_topic_of_another_broker_can_be_sent_to() -> None:
    with LocalCluster(brokers=2) as cluster:
        async with setup(cluster) as proxied:
            async with Admin(cluster.name_server) as admin:
                await admin.create_topic("OnB", 1, broker="broker-b")
            assert code_of(await proxied.client().send("OnB", "x")) == "OK"


async def test_the_limit_of_a_delay_is_that_of_the_broker() -> None:
    with LocalCluster(timerMaxDelaySec=3 * DAY_SECONDS) as cluster:
        async with setup(cluster) as proxied:
            await proxied.create("Later", "DELAY")
            client = proxied.client()
            now_s = cluster.clock() // 1_000
            two_days = {"seconds": now_s + 2 * DAY_SECONDS}
            assert code_of(await client.send("Later", "x", delivery_timestamp=two_days)) == "OK"
            year = {"seconds": now_s + 365 * DAY_SECONDS}
            refused = await client.send("Later", "x", delivery_timestamp=year)
            assert code_of(refused) == "ILLEGAL_DELIVERY_TIME"
            assert "timerMaxDelaySec" in refused.entries[0].status.message


async def test_a_refusal_of_the_broker_keeps_its_remark() -> None:
    with LocalCluster(rejectTransactionMessage=True) as cluster:
        async with setup(cluster) as proxied:
            await proxied.create("Closed", "TRANSACTION")
            answer = await proxied.client().send("Closed", "x", message_type=TYPES["TRANSACTION"])
            assert code_of(answer) == "FORBIDDEN"
            assert "transaction message is forbidden" in answer.entries[0].status.message


async def test_a_delayed_message_can_be_recalled(proxied: Setup) -> None:
    await proxied.create("Recalled", "DELAY")
    client = proxied.client()
    when = {"seconds": proxied.cluster.clock() // 1_000 + 600}
    sent = await client.send("Recalled", "x", delivery_timestamp=when, message_id="ID")
    handle = sent.entries[0].recall_handle
    topic = {"name": "Recalled"}
    answer = await client.call("RecallMessage", topic=topic, recall_handle=handle)
    assert (code_of(answer), answer.message_id) == ("OK", "ID")
    wrong = await client.call("RecallMessage", topic=topic, recall_handle="odd")
    assert code_of(wrong) == "INTERNAL_SERVER_ERROR"
    await proxied.create("Normals")
    normal = await client.call("RecallMessage", topic={"name": "Normals"}, recall_handle=handle)
    assert code_of(normal) == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"


async def test_a_body_labelled_gzip_comes_out_as_it_came(proxied: Setup) -> None:
    await proxied.create("Packed")
    client = proxied.client()
    await proxied.ready(client, "Packed", "readers")
    await client.send("Packed", "this is not gzip", body_encoding=2)
    _, (found,) = await client.receive("Packed", "readers")
    assert (found.body, found.system_properties.body_encoding) == (b"this is not gzip", 2)


async def test_a_body_of_four_mebibytes_goes_through(proxied: Setup) -> None:
    await proxied.create("Large")
    client = proxied.client()
    await proxied.ready(client, "Large", "readers")
    most = proxied.proxy.config.max_message_size
    refused = await client.send("Large", "x" * (most + 1))
    assert refused.status.code == Code.MESSAGE_BODY_TOO_LARGE
    body = "x" * (most - 1_024)  # the broker counts the record
    assert code_of(await client.send("Large", body)) == "OK"
    _, (found,) = await client.receive("Large", "readers")
    assert found.body.decode() == body
    assert found.system_properties.message_type == TYPES["NORMAL"]
