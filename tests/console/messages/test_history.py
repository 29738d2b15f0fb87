"""The history of a message equals what was done with it, told by the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.client import (
    Consumer,
    Message,
    PoppedMessage,
    Producer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    by_sql,
)
from aerobee.console.clusters.asking import Asking
from aerobee.console.clusters.samples import TimedGroup, group_row
from aerobee.console.messages.history import Step, history_of, history_of_deleted
from aerobee.console.messages.shown import id_of
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.summaries import GroupSummary
from aerobee.testing import LocalCluster

from ...client.clock import answered
from ...waiting import LONG, until


class Scene:
    """A cluster with a producer that traces nothing. Each test has a topic of its own."""

    def __init__(self, cluster: LocalCluster, admin: Asking, producer: Producer) -> None:
        self.cluster = cluster
        self.address = cluster.name_server
        self.admin = admin
        self.producer = producer

    async def send(self, topic: str, **more: object) -> None:
        """One message with the key k."""
        await self.admin.create_topic(topic, queues=1)
        await self.producer.send(Message(topic, b"body", keys=["k"], **more))  # type: ignore[arg-type]

    async def read(self, topic: str, group: str, number: int = 1, **more: object) -> None:
        """A group that processes this many messages."""
        reading = {"start": "earliest", "topics": [topic], **more}
        consumer = Consumer(self.address, group=group, **reading)  # type: ignore[arg-type]
        async with consumer, asyncio.timeout(LONG):
            for _ in range(number):
                message = await consumer.receive()
                assert message is not None
                await message.ack()

    async def history(self, topic: str) -> list[Step]:
        """The history of the message with the key k."""
        (record,) = await self.admin.query(topic, "k")
        return await history_of(self.admin, record, record_broker(self.cluster))

    async def steps(self, topic: str, group: str = "") -> list[str]:
        """What happened in a group, without its times; of the message itself for no group."""
        found = await self.history(topic)
        return [one.what.partition(", after ")[0] for one in found if one.group == group]

    async def until(self, topic: str, group: str, what: str) -> list[str]:
        """The steps once one of them begins so."""
        found: list[str] = []

        async def is_so() -> bool:
            nonlocal found
            found = await self.steps(topic, group)
            return any(one.startswith(what) for one in found)

        await self.until_later(is_so, lambda: f"{found} has no {what}")
        return found

    async def until_later(
        self, holds: Callable[[], Awaitable[object]], what: Callable[[], str]
    ) -> None:
        """Move the cluster's time until this holds."""

        async def is_so() -> bool:
            if await holds():
                return True
            self.cluster.advance(seconds=5)
            await answered(self.cluster, 0)
            return False

        await until(is_so, what)


def record_broker(cluster: LocalCluster) -> str:
    """The name of the only broker."""
    return cluster.brokers[0].config.broker_name


@pytest.fixture
async def scene(cluster: LocalCluster) -> AsyncIterator[Scene]:
    address = cluster.name_server
    async with Asking(address) as admin, Producer(address, group="till") as producer:
        yield Scene(cluster, admin, producer)


async def test_a_message_that_waits_and_then_is_passed_without_a_trace(scene: Scene) -> None:
    await scene.send("plain")
    await scene.read("plain", "g-plain")
    own = await scene.steps("plain")
    assert own[0].startswith("sent from 127.0.0.1")
    assert own[1].startswith("stored in plain, queue 0 of")
    assert own[2:] == ["no trace"]
    assert await scene.steps("plain", "g-plain") == ["passed by the group"]
    await scene.producer.send(Message("plain", b"later", keys=["later"]))
    (record,) = await scene.admin.query("plain", "later")
    history = await history_of(scene.admin, record, record_broker(scene.cluster))
    assert [one.what for one in history if one.group == "g-plain"] == ["waits for the group"]


@pytest.mark.parametrize("wanted", ["paid", by_sql("amount > 5")])
async def test_a_filter_that_refuses_it(scene: Scene, wanted: object) -> None:
    topic = "by-tag" if wanted == "paid" else "by-sql"
    await scene.send(topic, tags="open", properties={"amount": "1"})
    await scene.producer.send(Message(topic, b"wanted", tags="paid", properties={"amount": "9"}))
    consumer = Consumer(
        scene.address,
        group=f"g-{topic}",
        topics={topic: wanted},
        start="earliest",
    )
    async with consumer, asyncio.timeout(LONG):
        message = await consumer.receive()
        assert message is not None
        assert message.body == b"wanted"
        await message.ack()
        found = await scene.until(topic, f"g-{topic}", "passed: filtered out")
        (step,) = [one for one in await scene.history(topic) if one.group == f"g-{topic}"]
    assert found == ["passed: filtered out"]
    text = "paid" if wanted == "paid" else "amount > 5"
    assert step.why == f"its filter does not fit: it wants {text}"


async def test_a_broadcasting_group_keeps_no_offset_at_the_broker(
    scene: Scene, tmp_path: object
) -> None:
    await scene.send("all")
    # A group that once read it as one, so that the broker knows it.
    await scene.read("all", "g-all")
    consumer = Consumer(
        scene.address,
        group="g-all",
        topics=["all"],
        model="broadcasting",
        start="earliest",
        offsets_folder=str(tmp_path),
    )
    async with consumer:
        found = await scene.until("all", "g-all", "goes to every member")
    assert found == ["goes to every member; whether it was processed is not known"]


async def test_a_traced_message_was_processed_and_says_by_whom(scene: Scene) -> None:
    await scene.admin.create_topic("traced", queues=1)
    async with Producer(scene.address, group="tracer", trace=True) as producer:
        await producer.send(Message("traced", b"body", keys=["k"]))
    await scene.read("traced", "g-traced", trace=True)
    found = await scene.until("traced", "g-traced", "processed")
    assert found == ["given to a consumer, retry 0", "processed", "passed by the group"]
    assert "sent by group tracer" in await scene.steps("traced")


async def test_an_ordered_group_passes_it_as_well(scene: Scene) -> None:
    await scene.send("in-order")
    await scene.read("in-order", "g-order", ordered=True)
    assert await scene.steps("in-order", "g-order") == ["passed by the group"]


async def test_a_failed_message_is_retried_and_then_a_dead_letter(scene: Scene) -> None:
    await scene.send("fails")
    consumer = Consumer(scene.address, group="g-fails", topics=["fails"], start="earliest")
    async with consumer, asyncio.timeout(LONG):
        message = await consumer.receive()
        assert message is not None
        await message.nack(1)
        assert "retried, retry 1" in await scene.until("fails", "g-fails", "retried, retry 1")
        again = await consumer.receive()
        assert again is not None
        await again.nack(-1)
        await scene.until("fails", "g-fails", "given up")
        (letter,) = await scene.admin.query("%DLQ%g-fails", "k")
    # Only the last of its steps says why.
    (step,) = [one for one in await scene.history("fails") if one.why]
    assert step.why == "it was given up after 2 deliveries, and is a dead letter"
    assert step.letter == letter.offset_id
    found = await scene.steps("fails", "g-fails")
    assert found == [
        "delayed, level 1, for %RETRY%g-fails",
        "retried, retry 1",
        "given up: a dead letter",
        "passed by the group",
    ]


@pytest.mark.parametrize(
    ("topic", "more", "says"),
    [
        ("by-level", {"delay_level": 2}, "delayed, level 2, for by-level"),
        ("by-time", {"delay": 20}, "delayed, until"),
    ],
)
async def test_a_delayed_message_waited(
    scene: Scene, topic: str, more: dict[str, object], says: str
) -> None:
    await scene.send(topic, **more)
    await scene.until_later(lambda: scene.admin.query(topic, "k"), lambda: "it is not delivered")
    found = await scene.steps(topic)
    assert [one.startswith(says) for one in found].count(True) == 1
    assert found[0].startswith("sent from")


async def test_a_transaction_was_prepared_before_it_was_stored(scene: Scene) -> None:
    async def check(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    await scene.admin.create_topic("deals", queues=1)
    async with (
        TransactionProducer(scene.address, group="dealer", check=check) as producer,
        producer.transaction(Message("deals", b"body", keys=["k"])),
    ):
        pass
    found = await scene.until("deals", "", "stored in deals")
    assert "prepared in a transaction" in found
    assert found.index("prepared in a transaction") < [
        one.startswith("stored in deals") for one in found
    ].index(True)


async def test_a_popped_message_that_came_again_and_was_acknowledged(scene: Scene) -> None:
    await scene.send("popped")
    consumer = SimpleConsumer(scene.address, group="g-popped", topics=["popped"], start="earliest")
    async with consumer, asyncio.timeout(LONG):
        taken: list[object] = []
        while not taken:
            taken += await consumer.receive(max_messages=1, invisible=10, timeout=5)
        found = await scene.until("popped", "g-popped", "retried, retry 1")
        again: list[PoppedMessage] = []
        while not again:
            again = await consumer.receive(max_messages=1, invisible=60, timeout=5)
        await again[0].ack()
    assert "retried, retry 1" in found


async def test_of_a_group_that_never_read_the_queue_that_is_said(scene: Scene) -> None:
    await scene.send("two-queues")
    await scene.read("two-queues", "g-two")
    (record,) = await scene.admin.query("two-queues", "k")
    elsewhere = msgspec.structs.replace(record, queue_id=7)
    history = await history_of(scene.admin, elsewhere, record_broker(scene.cluster))
    (step,) = [one for one in history if one.group == "g-two"]
    assert (step.what, step.at_ms) == ("the group has not read the queue", None)
    assert step.proof == "it has no offset in this queue"
    history = await history_of(scene.admin, record, "another-broker")
    (step,) = [one for one in history if one.group == "g-two"]
    assert step.what == "how far the group is is not known"
    assert step.proof == "broker another-broker can't be asked"


async def place_of(scene: Scene, topic: str) -> MessageQueue:
    """The only queue of a topic."""
    return MessageQueue(topic, record_broker(scene.cluster), 0)


async def test_a_message_that_retention_took_and_a_group_that_came_too_late(scene: Scene) -> None:
    await scene.admin.create_topic("short", queues=1, attributes={"retention.ms": "1000"})
    async with Producer(scene.address, group="tracer", trace=True) as producer:
        for number in range(2):
            await producer.send(Message("short", b"body", keys=[f"k{number}"]))
    await scene.read("short", "g-late", number=1)
    scene.cluster.advance(hours=1)
    broker = scene.cluster.brokers[0]
    scene.cluster.call(lambda: [None for _ in broker.store.cleaner.expire()])
    queue = await place_of(scene, "short")
    assert await scene.admin.first_offset(queue) == 2
    for number, says in ((0, "passed by the group"), (1, "was gone before the group came to it")):
        (record,) = await scene.admin.query("short", f"k{number}")  # the log still has it
        found = await history_of(scene.admin, record, queue.broker_name)
        assert "gone from its queue by retention" in [one.what for one in found]
        assert [one.what for one in found if one.group == "g-late"] == [says]
        gone = await history_of_deleted(scene.admin, "short", "", queue, number)
        assert [one.what for one in gone if one.group == "g-late"] == [says]
    assert await history_of_deleted(scene.admin, "short", "", queue, 2) == []
    # Where the log has lost it, too, its id leads to what its trace tells.
    found = await history_of_deleted(scene.admin, "short", id_of(record))
    assert "sent by group tracer" in [one.what for one in found]
    assert found[-1].what == "is not in short any more"
    assert await history_of_deleted(scene.admin, "plain", id_of(record)) == []
    assert await history_of_deleted(scene.admin, "short", "an id that never was") == []


async def test_a_message_sent_and_read_through_a_proxy(scene: Scene) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed")
    from ...proxy.support import code_of, setup

    await scene.admin.create_topic("by-proxy", queues=1, attributes={"message.type": "NORMAL"})
    async with setup(scene.cluster) as proxied:
        client = proxied.client()
        await proxied.create_group("g-proxy")
        await proxied.ready(client, "by-proxy", "g-proxy")
        assert code_of(await client.send("by-proxy", "body", keys=["k"])) == "OK"
        taken: list[object] = []
        async with asyncio.timeout(LONG):
            while not taken:
                _, taken = await client.receive("by-proxy", "g-proxy")
        await client.ack("by-proxy", "g-proxy", *taken)
        found = await scene.until("by-proxy", "g-proxy", "passed by the group")
    assert found == ["passed by the group"]
    assert " through the proxy at 127.0.0.1:" in (await scene.steps("by-proxy"))[0]


async def test_a_slave_tells_the_way_while_its_master_is_away(tmp_path: Path) -> None:
    with LocalCluster(slave_read_enable=True) as cluster:
        master = cluster.brokers[0]
        slave = Broker(
            BrokerConfig(
                broker_name=master.config.broker_name,
                broker_role="SLAVE",
                broker_id=1,
                listen_port=0,
                ha_listen_port=0,
                bind_address="127.0.0.1",
                broker_ip1="127.0.0.1",
                namesrv_addr=cluster.name_server,
                store_path_root_dir=str(tmp_path),
                mapped_file_size_commit_log=16 << 20,
                slave_read_enable=True,
            )
        )
        async with (
            Asking(cluster.name_server) as admin,
            Producer(cluster.name_server, group="till") as producer,
        ):
            scene = Scene(cluster, admin, producer)
            await scene.send("copied")
            await scene.read("copied", "g-copied")
            await slave.start()
            try:
                assert slave.replica is not None
                replica = slave.replica
                await until(lambda: replica.is_master_there())
                end = cluster.call(lambda: master.store.log_end)
                await until(lambda: slave.store.whole_end >= end)
                replica.sync._asked_ms = None
                await replica.tick()
                (record,) = await admin.query("copied", "k")
                assert cluster._loop is not None
                stopped = asyncio.run_coroutine_threadsafe(master.stop(), cluster._loop)
                await asyncio.wrap_future(stopped)
                name = master.config.broker_name
                await until(lambda: admin.lacks_master("copied", name), "it has a master")
                found = await history_of(admin, record, master.config.broker_name)
            finally:
                await slave.stop()
        told = {one.what: one.proof for one in found}
        assert told["its broker has no master now"].startswith("a slave answers")
        assert "passed by the group" in told


async def whys(scene: Scene, topic: str, group: str, members: int | None = 0) -> list[str]:
    """Why a group with as many members has not consumed the message with the key k."""
    (record,) = await scene.admin.query(topic, "k")
    row = group_row(group, [TimedGroup(1, GroupSummary(group, True, members))])
    broker = record_broker(scene.cluster)
    found = await history_of(scene.admin, record, broker, {group: row})
    return [one.why for one in found if one.group == group and one.why]


async def test_a_message_that_waits_says_why(scene: Scene) -> None:
    topic, group = "unread", "g-unread"
    await scene.send(topic)
    (step,) = [one for one in await scene.history(topic) if one.why]
    assert (step.what, step.why) == ("no group reads the topic", "no group reads unread")
    await scene.read(topic, group)
    assert await whys(scene, topic, group) == []
    await scene.admin.set_offset(group, await place_of(scene, topic), 0)
    assert await whys(scene, topic, group) == ["no member is online"]
    unsure = ["its broker knows no member; one behind a proxy may be online"]
    assert await whys(scene, topic, group, None) == unsure
    # Members behind a proxy are online, so the message is held up by its queue only.
    assert await whys(scene, topic, group, 1) == ["it is the next one of its queue"]


async def test_a_message_behind_others_and_one_in_the_hands_of_a_member(scene: Scene) -> None:
    topic, group = "in-hand", "g-in-hand"
    await scene.admin.create_topic(topic, queues=1)
    for keys in (["first"], ["k"]):
        await scene.producer.send(Message(topic, b"body", keys=keys))
    await scene.read(topic, group, 2)
    await scene.admin.set_offset(group, await place_of(scene, topic), 0)
    assert await whys(scene, topic, group, 1) == ["1 message of its queue is before it"]
    consumer = Consumer(scene.address, group=group, topics=[topic])
    async with consumer, asyncio.timeout(LONG):
        for _ in range(2):
            assert await consumer.receive() is not None

        async def is_pulled() -> bool:
            wanted = ["a member has pulled it, and has not confirmed it yet"]
            return await whys(scene, topic, group, 1) == wanted

        await scene.until_later(is_pulled, lambda: "the broker does not know that it is pulled")


async def test_members_that_do_not_subscribe_and_a_group_that_may_not_consume(
    scene: Scene,
) -> None:
    topic, group = "dropped", "g-dropped"
    await scene.send(topic)
    await scene.read(topic, group)
    await scene.admin.set_offset(group, await place_of(scene, topic), 0)
    await scene.send("kept")
    async with Consumer(scene.address, group=group, topics=["kept"]):
        wanted = ["its members do not subscribe to dropped"]

        async def is_so() -> bool:
            return await whys(scene, topic, group, 1) == wanted

        await until(is_so, "the broker knows its member")
    (record,) = await scene.admin.query(topic, "k")
    row = group_row(group, [TimedGroup(1, GroupSummary(group, False, 0))])
    history = await history_of(scene.admin, record, record_broker(scene.cluster), {group: row})
    assert [one.why for one in history if one.group == group] == [
        "it may not consume; change the group so that it may"
    ]


async def test_a_retry_that_waits_says_so(scene: Scene) -> None:
    topic, group = "retried", "g-retried"
    await scene.send(topic)
    consumer = Consumer(scene.address, group=group, topics=[topic], start="earliest")
    async with consumer, asyncio.timeout(LONG):
        message = await consumer.receive()
        assert message is not None
        await message.nack(delay_level=18)
    delayed = "its consumer failed, and retry 1 waits for its time"
    assert await whys(scene, topic, group) == [delayed]

    async def is_due() -> bool:
        return bool(await scene.admin.query("%RETRY%" + group, "k"))

    scene.cluster.advance(hours=3)
    await scene.until_later(is_due, lambda: "the retry is not due")
    waits = "retry 1 waits for the group"
    assert await whys(scene, topic, group) == [f"{waits}: no member is online"]
    assert await whys(scene, topic, group, 1) == [waits]
    async with consumer_of(scene, topic, group) as consumer, asyncio.timeout(LONG):
        message = await consumer.receive()
        assert message is not None
        await message.ack()
    assert await whys(scene, topic, group) == []


def consumer_of(scene: Scene, topic: str, group: str) -> Consumer:
    """Another member of a group."""
    return Consumer(scene.address, group=group, topics=[topic])


async def test_a_dead_letter_that_was_sent_again_waits_and_then_is_consumed(scene: Scene) -> None:
    topic, group = "again", "g-again"
    await scene.send(topic)
    consumer = Consumer(scene.address, group=group, topics=[topic], start="earliest")
    async with consumer, asyncio.timeout(LONG):
        message = await consumer.receive()
        assert message is not None
        await message.nack(delay_level=-1)
    (letter,) = await scene.admin.query("%DLQ%" + group, "k")
    assert await whys(scene, topic, group) == [
        "it was given up after 1 delivery, and is a dead letter"
    ]
    retry = "%RETRY%" + group
    keys = f"k redriven:{letter.offset_id}"
    await scene.admin.send_letter(letter, retry, keys, is_retry=True)
    waits = "its dead letter was sent again and waits for the group: no member is online"
    assert await whys(scene, topic, group) == [waits]
    history = await history_of(scene.admin, letter, record_broker(scene.cluster))
    assert f"sent again to {retry}" in [one.what for one in history]
    async with consumer_of(scene, topic, group) as consumer, asyncio.timeout(LONG):
        message = await consumer.receive()
        assert message is not None
        await message.ack()
    assert await whys(scene, topic, group) == []
