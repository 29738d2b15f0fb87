"""`Admin.shrink_topic`: a topic gets fewer queues, and loses nothing that was in the others."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import (
    Admin,
    Consumer,
    Message,
    MessageView,
    Producer,
    TransactionProducer,
    TransactionState,
)
from aerobee.client.admin.shrinking import Unread
from aerobee.client.cluster import cluster as client_cluster
from aerobee.client.errors import ClientError
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.testing.cluster import LocalCluster

from ...waiting import LONG, until

UNKNOWN = TransactionState.UNKNOWN
AT_ONCE: dict[str, Any] = {"settle_s": 0.0, "look_s": 0.02}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as one:
        yield one


@pytest.fixture
def _soon_persisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers report their offsets at once instead of every 5 s."""
    monkeypatch.setattr(client_cluster, "PERSIST_SECONDS", 0.02)
    monkeypatch.setattr(client_cluster, "FIRST_PERSIST_SECONDS", 0.02)


async def sizes(admin: Admin, topic: str) -> dict[str, tuple[int, int]]:
    """The write and the read queues of a topic at the name server, by broker name."""
    route = await admin.route(topic)
    return {
        row.broker_name or "": (row.write_queue_nums, row.read_queue_nums)
        for row in route.queue_datas
    }


async def fill(cluster: LocalCluster, topic: str) -> int:
    """A message in each queue; how many these are."""
    async with Producer(cluster.name_server) as producer:
        queues = await producer.queues(topic)
        for queue in queues:
            await producer.send(Message(topic, b"x"), queue=queue)
    return len(queues)


class Load:
    """Sends until it is told to end, and keeps what was acknowledged, with the queues."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.sent: dict[bytes, int] = {}
        self.is_over = False
        self._producer = producer
        self._topic = topic

    async def run(self) -> None:
        while not self.is_over:
            await self.one()
            await asyncio.sleep(0)

    async def one(self) -> int:
        """Sends one message; the queue it is in."""
        body = b"%d of %d" % (len(self.sent), id(self))
        receipt = await self._producer.send(Message(self._topic, body), timeout=LONG)
        self.sent[body] = receipt.queue.queue_id
        return receipt.queue.queue_id


@pytest.mark.usefixtures("_soon_persisted")
async def test_a_topic_shrinks_under_load_and_every_message_arrives_once(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: Counter[bytes] = Counter()
    async with (
        Admin(cluster.name_server) as admin,
        Producer(cluster.name_server, group="busy") as busy,
        Producer(cluster.name_server, group="late") as late,
    ):
        await admin.create_topic("wide", 16, attributes={"retention.ms": "7200000"})
        load, idle = Load(busy, "wide"), Load(late, "wide")

        async def read(consumer: Consumer) -> None:
            async for message in consumer:
                got[message.body] += 1
                await message.ack()

        keeping: list[list[Unread]] = []
        set_queues = admin._set_queues

        async def set_and_renewed(*given: Any) -> None:
            """The busy producer asks for its routes before the first check, as within 30 s."""
            await set_queues(*given)
            await busy._open().refresh()
            count = len(load.sent)
            await until(lambda: len(load.sent) > count + 1)  # those under way have arrived

        monkeypatch.setattr(admin, "_set_queues", set_and_renewed)

        async with Consumer(
            cluster.name_server, group="readers", topics=["wide"], start="earliest"
        ) as consumer:
            reading = asyncio.create_task(read(consumer))
            await until(lambda: len(consumer.queues) >= 32)
            await late.queues("wide")  # its route is the old one until the end
            sending = asyncio.create_task(load.run())
            await until(lambda: set(load.sent.values()) >= set(range(16)))
            await admin.shrink_topic("wide", 8, looked=keeping.append, **AT_ONCE)
            assert await sizes(admin, "wide") == {"broker-a": (8, 8), "broker-b": (8, 8)}
            assert {await idle.one() for _ in range(32)} == set(range(8))
            load.is_over = True
            await sending
            every = [*load.sent, *idle.sent]
            await until(lambda: len(got) == len(every), lambda: set(every) - set(got))
            reading.cancel()
        assert all(load.sent[body] < 8 for body in list(load.sent)[-16:])
        assert got == Counter(every)  # each once
        assert keeping[-1] == []
        [config, _] = (await admin.topic_config("wide")).values()
        assert config.attributes == {"retention.ms": "7200000"}


@pytest.mark.usefixtures("_soon_persisted")
async def test_a_group_without_members_keeps_the_topic_and_is_named(cluster: LocalCluster) -> None:
    keeping: list[list[Unread]] = []
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("kept", 4, order=True)
        stored = await fill(cluster, "kept")
        async with Consumer(
            cluster.name_server, group="gone", topics=["kept"], start="earliest"
        ) as consumer:
            message = await consumer.receive(LONG)
            assert message is not None
            await message.ack()
        held = f"{stored // 2 - (message.queue_id >= 2)} messages of group gone (no member)"
        with pytest.raises(ClientError) as caught:
            await admin.shrink_topic("kept", 2, timeout_s=0, looked=keeping.append, **AT_ONCE)
        assert str(caught.value) == (
            f"topic kept is not ready within 0 s: {held}, in the queues from 2 on; it takes "
            "messages in 2 queues and is read in 4, and the same again goes on"
        )
        [[unread]] = keeping
        assert (unread.group, unread.members, str(unread)) == ("gone", 0, held)
        assert await sizes(admin, "kept") == {"broker-a": (2, 4), "broker-b": (2, 4)}

        await admin.skip_accumulated("gone", "kept")
        await admin.shrink_topic("kept", 2, **AT_ONCE)
        assert await sizes(admin, "kept") == {"broker-a": (2, 2), "broker-b": (2, 2)}
        assert all(config.order for config in (await admin.topic_config("kept")).values())


async def test_a_broadcasting_group_is_waited_for_by_what_its_members_say(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    keeping: list[list[Unread]] = []
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("told", 2, broker="broker-a")
        await fill(cluster, "told")
        async with Consumer(
            cluster.name_server,
            group="tellers",
            topics=["told"],
            start="earliest",
            model="broadcasting",
            offsets_folder=tmp_path,
        ) as consumer:
            messages = [await consumer.receive(LONG) for _ in range(2)]
            [first, last] = sorted(filter(None, messages), key=lambda one: one.queue_id)
            await first.ack()
            with pytest.raises(ClientError, match="not ready within 0 s: 1 message of group tell"):
                await admin.shrink_topic("told", 1, timeout_s=0, looked=keeping.append, **AT_ONCE)
            assert keeping == [[Unread("tellers", 1, 1)]]
            await last.ack()
            await admin.shrink_topic("told", 1, timeout_s=LONG, **AT_ONCE)
        assert await sizes(admin, "told") == {"broker-a": (1, 1)}


async def test_messages_that_came_after_the_last_check_are_waited_for_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer with the old route sends between the last check and the second step."""
    async with Admin(cluster.name_server) as admin, Producer(cluster.name_server) as producer:
        await admin.create_topic("raced", 2, broker="broker-a")
        queues = await producer.queues("raced")
        await admin.update_group(SubscriptionGroupConfig(group_name="slow"))
        await admin.set_offset("slow", queues[1], 0)
        seen: list[list[Unread]] = []
        changed = asyncio.Event()
        lower = admin._lower

        async def late(*given: Any) -> bool:
            if not changed.is_set():
                changed.set()
                await producer.send(Message("raced", b"late"), queue=queues[1])
            return await lower(*given)

        monkeypatch.setattr(admin, "_lower", late)

        shrinking = asyncio.create_task(
            admin.shrink_topic("raced", 1, looked=seen.append, **AT_ONCE)
        )
        await until(lambda: seen and seen[-1])
        assert seen[-1] == [Unread("slow", 0, 1)]
        assert await sizes(admin, "raced") == {"broker-a": (1, 2)}
        await admin.set_offset("slow", queues[1], 1)
        await shrinking
        assert await sizes(admin, "raced") == {"broker-a": (1, 1)}


async def test_a_topic_that_no_group_read_is_left_alone_unless_forced(
    cluster: LocalCluster,
) -> None:
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("unread", 4, broker="broker-b")
        await fill(cluster, "unread")
        with pytest.raises(ClientError) as caught:
            await admin.shrink_topic("unread", 1, **AT_ONCE)
        assert str(caught.value) == (
            "no group reads topic unread or has read it: its 3 messages in the queues from 1 on "
            "would be out of reach; have them read first, or force it (--force)"
        )
        assert await sizes(admin, "unread") == {"broker-b": (4, 4)}
        await admin.shrink_topic("unread", 1, force=True, **AT_ONCE)
        assert await sizes(admin, "unread") == {"broker-b": (1, 1)}


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        (0, "queues is 0; give 1 or more"),
        (5, "has 4 queues to write, 6 to read on broker-a, and 5 is not less; give a smaller"),
    ],
)
async def test_a_number_that_is_not_smaller_is_refused_with_what_there_is(
    cluster: LocalCluster, queues: int, said: str
) -> None:
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("four", 4, read_queues=6, broker="broker-a")
        with pytest.raises(ClientError, match=said):
            await admin.shrink_topic("four", queues, **AT_ONCE)
        await admin.shrink_topic("four", 4, **AT_ONCE)  # the second step of one that was begun
        with pytest.raises(ClientError, match=r"four has 4 queues on broker-a already, and 4 is"):
            await admin.shrink_topic("four", 4, **AT_ONCE)


async def test_a_topic_with_an_order_configuration_is_refused(cluster: LocalCluster) -> None:
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("lined", 4, order=True)
        await admin.update_namesrv_config({"orderMessageEnable": "true"})
        await admin.put_kv("ORDER_TOPIC_CONFIG", "lined", "broker-a:4;broker-b:4")
        with pytest.raises(ClientError, match=r"go by its order configuration 'broker-a:4;"):
            await admin.shrink_topic("lined", 2, **AT_ONCE)
        assert await sizes(admin, "lined") == {"broker-a": (4, 4), "broker-b": (4, 4)}


@pytest.mark.parametrize("numbers", [{"queues": 0}, {"queues": 4, "read_queues": 0}])
async def test_a_topic_has_at_least_one_queue_to_write_and_one_to_read(
    cluster: LocalCluster, numbers: dict[str, int]
) -> None:
    async with Admin(cluster.name_server) as admin:
        with pytest.raises(ClientError, match=f"{list(numbers)[-1]} is 0; give 1 to 65536"):
            await admin.create_topic(
                "none", numbers["queues"], read_queues=numbers.get("read_queues")
            )


async def test_what_waited_for_its_time_comes_in_a_queue_that_is_left() -> None:
    """Delayed, timed and half messages keep the queue that they were sent to."""
    topic, bodies = (
        "waiting",
        [f"{kind} {n}" for kind in ("level", "timer", "half") for n in range(8)],
    )
    with LocalCluster() as own:
        async with Admin(own.name_server) as admin:
            await admin.create_topic(topic, 8)
            async with TransactionProducer(own.name_server, group="p", check=commits) as producer:
                for body in bodies:
                    kind = body.split()[0]
                    if kind == "half":
                        message = Message(topic, body.encode())
                        await producer.send_in_transaction(message, lambda _: UNKNOWN)
                    elif kind == "timer":
                        await producer.send(Message(topic, body.encode(), delay=30.5))
                    else:
                        await producer.send(Message(topic, body.encode(), delay_level=4))
                await admin.shrink_topic(topic, 2, force=True, **AT_ONCE)
                assert await sizes(admin, topic) == {"broker-a": (2, 2)}
                stats = admin.topic_stats

                async def all_there() -> bool:
                    own.advance(minutes=2)
                    table = (await stats(topic)).offset_table
                    return sum(one.max_offset for one in table.values()) == len(bodies)

                await until(all_there, "not all came")
        async with (
            asyncio.timeout(LONG),
            Consumer(own.name_server, group="late", topics=[topic], start="earliest") as consumer,
        ):
            found: list[str] = []
            while len(found) < len(bodies):
                got = await consumer.receive()
                assert got is not None
                assert got.queue.queue_id < 2
                found.append(got.body.decode())
                await got.ack()
    assert sorted(found) == sorted(bodies)


def commits(_: MessageView) -> TransactionState:
    return TransactionState.COMMIT
