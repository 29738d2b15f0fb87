"""Our client with the real name server and broker, and beside Java clients in one group.

tests/client has the same with our servers.
"""

from __future__ import annotations

import asyncio

import pytest
from aerobee.client import Consumer, Message, Producer, blocking
from aerobee.client.group.received import ReceivedMessage
from aerobee.harness.clusters import JavaCluster

from .programs import SECONDS, Java, Mqadmin
from .support import received, until

pytestmark = pytest.mark.smoke


def keys_of(messages: list[ReceivedMessage]) -> set[str]:
    return {message.keys[0] for message in messages}


async def test_java_consumers_receive_all_that_a_python_producer_sends(
    java_cluster: JavaCluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic = "FromPython"
    await asyncio.to_thread(mqadmin.create_topic, java_cluster, topic, 4)
    member = java.start(
        "Consume", namesrv=java_cluster.namesrv, topic=topic, group="OfPython", tags="a||b"
    )

    def message(key: str, tags: str = "a", body: str = "") -> Message:
        return Message(
            topic, (body or key).encode(), tags=tags, keys=[key], properties={"number": "ü"}
        )

    long_body = "a long body is compressed on its way. " * 400
    async with Producer(java_cluster.namesrv, group="PythonMakers") as producer:
        one = await producer.send(message("one"))
        together = await asyncio.gather(
            *(producer.send(message(f"task-{number}", "b")) for number in range(200))
        )
        keyed = [
            await producer.send(message(f"keyed-{n}"), sharding_key="always here") for n in range(5)
        ]
        batch = await producer.send_batch(message(f"batch-{number}") for number in range(100))
        for number in range(20):
            await producer.send_oneway(message(f"oneway-{number}"))
        await producer.send(message("long", body=long_body))
        await producer.send(message("not-asked-for", "c"))
        every = len(await producer.queues(topic))

    wanted = {"one", "long"}
    wanted |= {f"task-{number}" for number in range(200)}
    wanted |= {f"keyed-{number}" for number in range(5)}
    wanted |= {f"batch-{number}" for number in range(100)}
    wanted |= {f"oneway-{number}" for number in range(20)}
    await until(
        lambda: {each["key"] for each in member.events("message")} >= wanted,
        lambda: member.events("message")[-3:],
    )
    got = {each["key"]: each for each in member.events("message")}
    assert got.keys() == wanted
    assert every == 4
    for key, receipt in {"one": one, "task-7": together[7], "keyed-0": keyed[0]}.items():
        place = (receipt.queue.broker_name, receipt.queue.queue_id, receipt.queue_offset)
        assert (got[key]["broker"], got[key]["queue"], got[key]["offset"]) == place
        assert got[key]["msgId"] == receipt.msg_id
    assert {got[f"keyed-{n}"]["queue"] for n in range(5)} == {keyed[0].queue.queue_id}
    assert [got[f"batch-{n}"]["msgId"] for n in range(100)] == batch.msg_ids
    assert got["long"]["body"] == long_body
    assert got["one"]["number"] == "ü"
    assert got["task-7"]["tag"] == "b"


async def test_a_python_consumer_receives_the_tags_it_asked_for_of_all_that_java_sends(
    java_cluster: JavaCluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic = "FromJava"
    await asyncio.to_thread(mqadmin.create_topic, java_cluster, topic, 4)
    modes = "sync,async,oneway,batch,select"
    producer = java.start(
        "Produce",
        namesrv=java_cluster.namesrv,
        topic=topic,
        mode=modes,
        count=60,
        tags="Aa,BB,other",
    )
    # Aa and BB have the same Java hash code: only the client can distinguish them.
    async with (
        Consumer(
            java_cluster.namesrv, group="OfJava", topics={topic: "Aa || other"}, start="earliest"
        ) as consumer,
        received(consumer) as messages,
    ):
        wanted = {
            f"m-{mode}-{number}"
            for mode in modes.split(",")
            for number in range(60)
            if number % 3 != 1
        }
        done = await asyncio.to_thread(producer.wait_event, "done", SECONDS)
        assert done["failed"] == 0, producer.events("failed")
        await until(lambda: keys_of(messages) >= wanted, lambda: keys_of(messages))
    assert keys_of(messages) == wanted
    assert {message.tags for message in messages} == {"Aa", "other"}
    assert all(message.body.decode() == message.keys[0] for message in messages)
    sent = {each["key"]: each for each in producer.events("sent")}
    for message in messages:
        receipt = sent.get(message.keys[0], {})
        if "offset" in receipt:
            assert (message.queue_id, message.offset) == (receipt["queue"], receipt["offset"])
            assert message.msg_id == receipt["msgId"]


async def test_java_and_python_members_of_one_group_share_its_queues(
    java_cluster: JavaCluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic, group = "Shared", "SharedGroup"
    await asyncio.to_thread(mqadmin.create_topic, java_cluster, topic, 8)
    joined = {"namesrv": java_cluster.namesrv, "topic": topic}
    other = await asyncio.to_thread(java.consume, **joined, group=group)

    async def wait_for_shares(*members: Consumer) -> None:
        def shares() -> list[list[int]]:
            held = other.events("queues")[-1]["queues"]
            in_java = [int(queue.rpartition(":")[2]) for queue in held]
            return [in_java, *([each.queue_id for each in one.queues] for one in members)]

        async def are_shared() -> bool:
            await asyncio.to_thread(other.ask, "queues", "queues", SECONDS)
            flat = sorted(queue for share in shares() for queue in share)
            return flat == list(range(8)) and all(shares())

        await until(are_shared, shares)

    def make() -> Consumer:
        return Consumer(java_cluster.namesrv, group=group, topics=[topic], start="earliest")

    async with make() as first, received(first) as by_first:
        await wait_for_shares(first)
        sent = {each["key"] for each in await asyncio.to_thread(java.produce, **joined, count=80)}
        async with make() as second, received(second) as by_second:
            await wait_for_shares(first, second)
            more = await asyncio.to_thread(java.produce, **joined, count=80, prefix="more")
            sent |= {each["key"] for each in more}
            await until(lambda: bool(by_second), lambda: second.queues)
        await wait_for_shares(first)

        def got() -> set[str]:
            ours = {message.keys[0] for message in [*by_first, *by_second]}
            return ours | {each["key"] for each in other.events("message")}

        await until(lambda: got() >= sent, lambda: sorted(sent - got()))
    assert got() == sent
    assert len(sent) == 160
    assert by_first
    assert other.events("message")


async def test_a_python_group_continues_from_its_committed_offset(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic = "GoesOn"
    await asyncio.to_thread(mqadmin.create_topic, java_cluster, topic, 4)
    async with Producer(java_cluster.namesrv) as producer:
        for batch in range(2):
            keys = [f"batch-{batch}-{number:02}" for number in range(20)]
            await producer.send_batch(Message(topic, b"body", keys=[key]) for key in keys)
            async with (
                Consumer(
                    java_cluster.namesrv, group="GoesOnGroup", topics=[topic], start="earliest"
                ) as consumer,
                received(consumer) as messages,
            ):
                await until(lambda: keys_of(messages) >= set(keys), lambda: keys_of(messages))  # noqa: B023
            assert keys_of(messages) == set(keys)


async def test_a_message_that_python_returns_is_redelivered(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic = "GivenBack"
    await asyncio.to_thread(mqadmin.create_topic, java_cluster, topic, 4)
    async with (
        Consumer(
            java_cluster.namesrv, group="GivenBackGroup", topics=[topic], start="earliest"
        ) as consumer,
        received(consumer, lambda message: message.reconsume_times > 0) as messages,
        Producer(java_cluster.namesrv) as producer,
    ):
        receipt = await producer.send(Message(topic, b"body", keys=["again"]))
        # The first redelivery comes after ten seconds: delay level 3.
        await until(lambda: len(messages) >= 2, lambda: messages)
    first, second, *_ = messages
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert first.msg_id == second.msg_id == receipt.msg_id
    assert second.topic == topic
    assert second.body == b"body"


def test_the_blocking_client_sends_and_receives(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic = "Blocking"
    mqadmin.create_topic(java_cluster, topic, 4)
    with blocking.Producer(java_cluster.namesrv) as producer:
        sent = {producer.send(Message(topic, b"%d" % number)).msg_id for number in range(50)}
    found: set[str] = set()
    with blocking.Consumer(
        java_cluster.namesrv, group="BlockingGroup", topics=[topic], start="earliest"
    ) as consumer:
        while len(found) < 50:
            message = consumer.receive(SECONDS)
            assert message is not None, f"only {len(found)} messages after {SECONDS} s"
            found.add(message.msg_id)
            message.ack()
    assert found == sent
