"""The client against our own name server and broker, all in one process."""

import asyncio
import time
from collections import Counter

import pytest
from aerobee.broker.server import Broker
from aerobee.client import Admin, Consumer, Message, Producer, blocking
from aerobee.client.errors import BrokerError, ClientError, NoRouteError
from aerobee.client.pull.reader import Reader
from aerobee.client.push import pulling
from aerobee.protocol import codes
from aerobee.protocol.message.record import decode_all
from msgspec.structs import replace

from ..waiting import LONG
from .fakes import until


async def drain(consumer: Consumer, count: int) -> Counter[bytes]:
    """The bodies of the next messages, each acknowledged."""
    found: Counter[bytes] = Counter()
    async with asyncio.timeout(LONG):
        while found.total() < count:
            message = await consumer.receive()
            assert message is not None
            async with message.process():
                found[message.body] += 1
    return found


async def test_every_kind_of_send_arrives_once_and_a_second_consumer_goes_on(address: str) -> None:
    async with Producer(address, group="shop") as producer:
        sent = [b"one", b"oneway", b"long" * 2000]
        receipt = await producer.send(Message("orders", b"one", tags="a", keys=["k1", "k2"]))
        await producer.send_oneway(Message("orders", b"oneway"))
        await producer.send(Message("orders", sent[2], properties={"shop": "é"}))
        batch = [Message("orders", b"batch %d" % number) for number in range(300)]
        await producer.send_batch(batch)
        sent += [message.body for message in batch]
        async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            found: dict[bytes, object] = {}
            async with asyncio.timeout(LONG):
                while len(found) < len(sent):
                    message = await consumer.receive()
                    assert message is not None
                    async with message.process():
                        assert message.body not in found
                        found[message.body] = message
                        if message.body == b"one":
                            assert message.msg_id == receipt.msg_id
                            assert message.offset_msg_id == receipt.offset_msg_id
                            assert (message.tags, message.keys) == ("a", ["k1", "k2"])
                            assert message.queue == receipt.queue
                        if message.body == sent[2]:
                            assert message.properties["shop"] == "é"
            assert sorted(found) == sorted(sent)
        await producer.send(Message("orders", b"later"))
    async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
        assert await drain(consumer, 1) == {b"later": 1}


async def test_members_share_the_queues_and_a_leaving_one_leaves_no_gap(address: str) -> None:
    sent, got = Counter[bytes](), Counter[bytes]()
    everything = asyncio.Event()

    async def work(consumer: Consumer) -> None:
        async for message in consumer:
            async with message.process():
                got[message.body] += 1
                if len(got) == 600:
                    everything.set()

    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 6)

        async def send(start: int) -> None:
            for number in range(start, start + 200):
                body = b"%d" % number
                await producer.send(Message("orders", body))
                sent[body] += 1

        first = Consumer(address, group="g", topics=["orders"], start="earliest")
        second = Consumer(address, group="g", topics=["orders"], start="earliest")
        async with first:
            tasks = [asyncio.create_task(work(first))]
            await until(lambda: len(first.queues) == 6)
            await send(0)
            async with second:
                tasks.append(asyncio.create_task(work(second)))
                await until(lambda: len(first.queues) == len(second.queues) == 3)
                assert not set(first.queues) & set(second.queues)
                await send(200)
            await until(lambda: len(first.queues) == 6)
            await send(400)
            await asyncio.wait_for(everything.wait(), LONG)
        await asyncio.gather(*tasks)
    assert set(got) == set(sent)


async def test_a_message_that_fails_comes_again_through_the_retry_topic(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send(Message("orders", b"x", tags="t"))
    async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        await first.nack(delay_level=1)
        again = await consumer.receive(LONG)
        assert again is not None
        assert (again.topic, again.queue.topic) == ("orders", "%RETRY%g")
        assert (again.msg_id, again.tags, again.body) == (first.msg_id, "t", b"x")
        assert again.reconsume_times == 1
        await again.ack()


async def test_a_message_that_is_given_up_goes_to_the_dead_letters(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send(Message("orders", b"x"))
    async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack(delay_level=-1)
    async with Reader(address) as reader:
        (queue,) = await reader.queues("%DLQ%g")
        (stored,) = decode_all((await reader.pull(queue, 0)).body)
    assert stored.body == b"x"


async def test_only_the_wanted_tags_arrive(address: str) -> None:
    async with Producer(address) as producer:
        for tag in ("paid", "open", "refunded", None, "paid"):
            await producer.send(Message("orders", (tag or "none").encode(), tags=tag))
    topics = {"orders": "paid || refunded"}
    async with Consumer(address, group="g", topics=topics, start="earliest") as consumer:
        assert await drain(consumer, 3) == {b"paid": 2, b"refunded": 1}
        assert await consumer.receive(0.05) is None


async def test_a_start_in_time_skips_what_is_older(address: str) -> None:
    async with Producer(address) as producer:
        async with Admin(address) as admin:
            await admin.create_topic("orders", 1)
        (queue,) = await producer.queues("orders")
        await producer.send(Message("orders", b"old"), queue=queue)
        between = time.time_ns() // 1_000_000 + 1
        await until(lambda: time.time_ns() // 1_000_000 > between)
        await producer.send(Message("orders", b"new"), queue=queue)
    async with Reader(address) as reader:
        assert await reader.offset_at(queue, between) == 1
        assert await reader.offset_at(queue, 0) == 0


async def test_a_new_message_wakes_the_waiting_pull_at_once(address: str) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            await until(lambda: len(consumer.queues) == 1)
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))
                assert await drain(consumer, 1) == {b"%d" % number: 1}


async def test_producer_and_consumer_outlive_a_restart_of_the_broker(
    address: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PULL_AGAIN_SECONDS", (0.01,))
    async with Producer(address) as producer:
        await producer.send(Message("orders", b"before"))
        async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            assert await drain(consumer, 1) == {b"before": 1}
            ports = {"listen_port": broker.port, "ha_listen_port": broker.ha_port}
            await broker.stop()
            again = Broker(replace(broker.config, **ports))
            await again.start()
            try:
                await producer.send(Message("orders", b"after"))
                assert await drain(consumer, 1) == {b"after": 1}
            finally:
                await consumer.close()
                await producer.close()
                await again.stop()


async def test_admin_sees_and_changes_the_cluster(address: str, broker: Broker) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 3, attributes={"message.type": "NORMAL"})
        assert "orders" in await admin.topics()
        (row,) = (await admin.route("orders")).queue_datas
        assert (row.read_queue_nums, row.write_queue_nums, row.perm) == (3, 3, 6)
        receipt = await producer.send(Message("orders", b"x"))
        info = await admin.cluster_info()
        assert info.broker_addr_table["broker-a"].broker_addrs == {0: broker.address}
        async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            await drain(consumer, 1)
            members = await admin.consumer_connection("g")
            assert members is not None
            assert [each.language for each in members.connection_set] == ["PYTHON"]
        assert await admin.consumer_connection("g") is None
        stats = await admin.topic_stats("orders")
        assert sum(each.max_offset for each in stats.offset_table.values()) == 1
        progress = await admin.consume_stats("g")
        assert progress.offset_table[receipt.queue].consumer_offset == 1
        assert "g" in (await admin.groups())["broker-a"].subscription_group_table
        assert (await admin.message(receipt.offset_msg_id)).body == b"x"
        assert sum((await admin.offsets_at("orders", 1 << 60)).values()) == 1
        assert "brokerVersionDesc" in await admin.broker_runtime(broker.address)
        assert "brokerName=broker-a" in await admin.broker_config(broker.address)
        await admin.delete_group("g", clean_offsets=True)
        assert "g" not in (await admin.groups())["broker-a"].subscription_group_table
        await admin.delete_topic("orders")
        with pytest.raises(NoRouteError):
            await admin.route("orders")


async def test_admin_says_what_can_not_be_done(address: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(ClientError, match="illegal characters"):
            await admin.create_topic("a b")
        with pytest.raises(ClientError, match="queues is 0"):
            await admin.create_topic("orders", 0)
        with pytest.raises(NoRouteError, match="cluster nope"):
            await admin.create_topic("orders", cluster="nope")
        with pytest.raises(ClientError, match="32"):
            await admin.message("xyz")


async def test_a_reader_reads_every_queue_by_hand(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send_batch([Message("orders", b"%d" % number) for number in range(100)])
        receipt = await producer.send(Message("orders", b"last"))
    async with Reader(address, group="spark") as reader:
        found: list[bytes] = []
        for queue in await reader.queues("orders"):
            at, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while at < end:
                pulled = await reader.pull(queue, at, max_messages=7)
                assert (pulled.code, pulled.max_offset) == (codes.SUCCESS, end)
                found += (each.body for each in decode_all(pulled.body))
                assert pulled.next_offset > at
                at = pulled.next_offset
        assert len(found) == 101
        beyond = await reader.pull(receipt.queue, receipt.queue_offset + 1)
        assert (beyond.code, beyond.body) == (codes.PULL_NOT_FOUND, b"")
        with pytest.raises(NoRouteError, match="topic nope; create it"):
            await reader.queues("nope")
        with pytest.raises(ClientError, match="max_messages is 0"):
            await reader.pull(receipt.queue, 0, max_messages=0)
        with pytest.raises(BrokerError, match="TOPIC_NOT_EXIST"):
            await reader.pull(blocking.MessageQueue("nope", "broker-a", 0), 0)
