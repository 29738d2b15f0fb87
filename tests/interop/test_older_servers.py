"""Our client with the name server and the broker of RocketMQ 4.9, by their own start-up classes.

One story: messages are sent in each way there is, consumed, polled and ended in transactions. 4.9.7
is the last 4.9 whose servers are on Maven Central.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aerobee.client import (
    Admin,
    Consumer,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    TransactionProducer,
    TransactionState,
)
from aerobee.client.base.message_view import MessageView
from aerobee.client.errors import AerobeeError
from aerobee.client.group.received import ReceivedMessage
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.harness.clusters import BROKER_NAME, CLUSTER_NAME, JavaCluster

from .programs import SECONDS
from .support import received, until

VERSION = "4.9.7"


class OlderCluster(JavaCluster):
    """The two processes of an older version."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            {
                "mapedFileSizeCommitLog": 16 << 20,
                "transactionCheckInterval": 1_000,
                "transactionTimeOut": 1_000,
                "messageDelayLevel": "1s 1s 1s 1s 1s",
            },
        )
        self._children: list[Child] = []

    def start(self) -> None:
        for role, main, file in (
            ("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", self.namesrv_file),
            ("broker", "org.apache.rocketmq.broker.BrokerStartup", self.broker_file),
        ):
            home = self.folder / f"{role}-home"
            argv = java_side.server(main, "-c", str(file), home=home, version=VERSION)
            child = Child(argv, home / "stderr", env={"NAMESRV_ADDR": ""}, cwd=home)
            self._children.append(child)
            child.wait_line(lambda line: "boot success" in line, SECONDS)

    def stop(self) -> None:
        for child in self._children:
            child.kill()


@pytest.fixture
def older(java_is_here: None, tmp_path: Path) -> Iterator[OlderCluster]:
    cluster = OlderCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


async def is_registered(admin: Admin) -> bool:
    """Whether the name server knows the broker."""
    with suppress(AerobeeError):
        return BROKER_NAME in (await admin.cluster_info()).broker_addr_table
    return False


async def test_our_client_does_with_older_servers_all_that_they_can(older: OlderCluster) -> None:
    address, topic = older.namesrv, "Orders"
    async with Admin(address) as admin:
        await until(lambda: is_registered(admin), BROKER_NAME)
        await admin.create_topic(topic, 4)
        await admin.create_topic("Paid", 1)

        async def has_topics() -> bool:
            return {topic, "Paid"} <= set(await admin.topics_of_cluster(CLUSTER_NAME))

        await until(has_topics, topic)
        sent = await send(address, topic)
        await consume(address, topic, sent, ordered=False)
        await consume(address, topic, sent, ordered=True)
        await poll(address, topic, sent)
        await transact(address)
        progress = await admin.consume_stats("Readers-False", topic)
        assert sum(each.consumer_offset for each in progress.offset_table.values()) == len(sent)


async def send(address: str, topic: str) -> list[str]:
    """Messages in each way that there is; their bodies."""
    async with Producer(address, group="Writers", trace=False) as producer:
        for number in range(8):
            await producer.send(Message(topic, b"single-%d" % number, tags="a", keys=[f"{number}"]))
        await producer.send(Message(topic, b"long" * 5_000))
        await producer.send(Message(topic, b"later", delay_level=1))
        await producer.send(Message(topic, b"key"), sharding_key="o-1")
        await producer.send_oneway(Message(topic, b"oneway"))
        await producer.send_batch([Message(topic, b"batch-%d" % number) for number in range(8)])
    singles = [f"single-{number}" for number in range(8)]
    batch = [f"batch-{number}" for number in range(8)]
    return sorted([*singles, *batch, "long" * 5_000, "later", "key", "oneway"])


async def consume(address: str, topic: str, sent: list[str], *, ordered: bool) -> None:
    """A group gets them all; what it gives back once comes again; then it leaves."""
    failed = set[str]()

    def settle(message: ReceivedMessage) -> bool:
        if ordered or message.body != b"key" or failed:
            return True
        failed.add(message.msg_id)
        return False

    async with (
        Consumer(
            address, group=f"Readers-{ordered}", topics=[topic], start="earliest", ordered=ordered
        ) as consumer,
        received(consumer, settle) as messages,
    ):
        wanted = Counter(sent) + Counter([] if ordered else ["key"])
        await until(
            lambda: Counter(message.body.decode() for message in messages) >= wanted,
            lambda: messages,
        )
        assert await consumer.drain(SECONDS)


async def poll(address: str, topic: str, sent: list[str]) -> None:
    """Lite pull and plain pull see the same."""
    async with LitePullConsumer(address, group="Pollers", start="earliest") as consumer:
        await consumer.subscribe(topic)
        found = list[str]()
        async with asyncio.timeout(SECONDS):
            while len(found) < len(sent):
                found += [message.body.decode() for message in await consumer.poll(1)]
        await consumer.commit()
        queues = consumer.assignment
        assert sum([await consumer.committed(queue) for queue in queues]) == len(sent)
    assert sorted(found) == sent
    async with PullConsumer(address, group="Pollers") as reader:
        assert await reader.queues(topic) == queues
        outcome = await reader.pull(queues[0], 0)
        assert outcome.messages[0].offset == 0


async def transact(address: str) -> None:
    """One is committed, one rolled back, and one is asked about."""

    def check(message: MessageView) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer(address, group="Payers", check=check) as producer:
        async with producer.transaction(Message("Paid", b"yes")):
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message("Paid", b"no")):
                raise ZeroDivisionError
        await producer.send_in_transaction(
            Message("Paid", b"asked"), lambda _: TransactionState.UNKNOWN
        )
        async with (
            Consumer(address, group="Auditors", topics=["Paid"], start="earliest") as consumer,
            received(consumer) as messages,
        ):
            await until(lambda: len({one.body for one in messages}) >= 2, lambda: messages)
            assert {message.body for message in messages} == {b"asked", b"yes"}
