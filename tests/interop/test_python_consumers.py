"""Our consumers with the real broker, and beside Java members: in order, broadcasting, lite pull,
plain pull, pop, administration. tests/client has the same with our broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from aerobee.client import (
    Consumer,
    ConsumeSettings,
    LitePullConsumer,
    Message,
    MessageQueue,
    Outcome,
    Producer,
    PullConsumer,
    SimpleConsumer,
)
from aerobee.client.errors import NoRouteError
from aerobee.client.group.received import ReceivedMessage
from aerobee.client.pop.simple import PoppedMessage
from aerobee.harness import java_side
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import CLUSTER_NAME, JavaCluster

from .programs import SECONDS, Java, Mqadmin
from .support import received, until


async def make(mqadmin: Mqadmin, cluster: JavaCluster, topic: str, queues: int = 4) -> None:
    """A topic that the name server knows."""
    await asyncio.to_thread(mqadmin.create_topic, cluster, topic, queues)


async def send(cluster: JavaCluster, topic: str, bodies: list[str]) -> list[MessageQueue]:
    """Sends the bodies through the queues in turn, in this order; the queues."""
    async with Producer(cluster.namesrv) as producer:
        queues = await producer.queues(topic)
        for number, body in enumerate(bodies):
            message = Message(topic, body.encode(), keys=[body])
            await producer.send(message, queue=queues[number % len(queues)])
        return queues


async def first_of(cluster: JavaCluster, topic: str) -> bytes:
    """The body of a topic's first message, as soon as there is one."""
    async with PullConsumer(cluster.namesrv, group="FirstReader") as reader:
        found: list[bytes] = []

        async def has_one() -> bool:
            with suppress(NoRouteError):
                (queue,) = await reader.queues(topic)
                found[:] = [message.body for message in (await reader.pull(queue, 0)).messages]
            return bool(found)

        await until(has_one, topic)
        return found[0]


async def test_queues_are_consumed_in_order_and_a_dead_message_lets_them_go_on(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic, group = "InOrder", "InOrderGroup"
    await make(mqadmin, java_cluster, topic, 3)
    seen: dict[int, list[str]] = defaultdict(list)
    consumer = Consumer(
        java_cluster.namesrv,
        group=group,
        topics=[topic],
        start="earliest",
        ordered=True,
        max_reconsume_times=2,
        consume=ConsumeSettings(suspend_s=0.05),
    )

    @consumer.listener
    async def listen(message: ReceivedMessage) -> Outcome | None:
        seen[message.queue_id].append(message.body.decode())
        return Outcome.LATER if message.body == b"4" else None

    async with consumer:
        await send(java_cluster, topic, [str(number) for number in range(30)])
        await until(lambda: sum(map(len, seen.values())) >= 32, lambda: dict(seen))
        dead = await first_of(java_cluster, f"%DLQ%{group}")
    assert dead == b"4"
    wanted: dict[int, list[str]] = defaultdict(list)
    for number in range(30):
        wanted[number % 3] += [str(number)] * (3 if number == 4 else 1)
    assert seen == wanted


async def test_java_and_python_members_in_order_hand_queues_over_both_ways(
    java_cluster: JavaCluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic, group = "InOrderShared", "InOrderSharedGroup"
    await make(mqadmin, java_cluster, topic, 4)
    order: dict[int, list[int]] = defaultdict(list)
    sent = 0

    async def more(count: int) -> None:
        nonlocal sent
        await send(java_cluster, topic, [str(number) for number in range(sent, sent + count)])
        sent += count

    async def work(consumer: Consumer) -> None:
        async for message in consumer:
            async with message.process():
                order[message.queue_id].append(int(message.body))

    def make_member() -> Consumer:
        return Consumer(
            java_cluster.namesrv, group=group, topics=[topic], start="earliest", ordered=True
        )

    def by_java(program: Reporter) -> int:
        return len(program.events("message"))

    async with make_member() as first:
        task = asyncio.create_task(work(first))
        await more(40)
        await until(lambda: sum(map(len, order.values())) >= 40, lambda: dict(order))
        other = await asyncio.to_thread(
            java.consume, namesrv=java_cluster.namesrv, topic=topic, group=group, orderly=True
        )
        await until(lambda: len(first.queues) == 2, lambda: first.queues)
        mine = {queue.queue_id for queue in first.queues}
        await more(40)
        await until(lambda: by_java(other) >= 20, lambda: by_java(other))
        await until(lambda: sum(map(len, order.values())) >= 60, lambda: dict(order))
        await first.drain(SECONDS)
        await task
    # Our queues went to the Java member, which goes on where we were.
    await more(40)
    await until(lambda: by_java(other) >= 60, lambda: by_java(other))
    theirs: dict[int, list[int]] = defaultdict(list)
    for event in other.events("message"):
        theirs[event["queue"]].append(int(event["body"]))
    async with make_member() as last:
        task = asyncio.create_task(work(last))
        await until(lambda: len(last.queues) == 2, lambda: last.queues)
        await asyncio.to_thread(other.ask, "stop", "stopped", SECONDS)
        await until(lambda: len(last.queues) == 4, lambda: last.queues)
        await more(40)
        await until(lambda: sum(map(len, order.values())) >= 100, lambda: dict(order))
        await last.drain(SECONDS)
        await task
    for queue_id in range(4):
        every = sorted(order[queue_id] + theirs[queue_id])
        assert every == [number for number in range(160) if number % 4 == queue_id]
        assert order[queue_id] == sorted(order[queue_id])
        assert theirs[queue_id] == sorted(theirs[queue_id])
    assert len(mine) == 2


async def test_the_offsets_of_a_broadcasting_group_go_from_java_to_python_and_back(
    java_cluster: JavaCluster, mqadmin: Mqadmin, tmp_path: Path
) -> None:
    topic, group = "ToAll", "ToAllGroup"
    await make(mqadmin, java_cluster, topic, 2)
    orders = ["--namesrv", java_cluster.namesrv, "--topic", topic, "--group", group]
    orders += ["--model", "broadcasting"]

    async def with_java(wanted: list[str]) -> str:
        """Has a Java member consume exactly these; its client id."""
        program = await asyncio.to_thread(java_side.start, "Consume", *orders, home=tmp_path)
        started = await asyncio.to_thread(program.wait_event, "started", SECONDS)

        def events() -> list[str]:
            return sorted(each["body"] for each in program.events("message"))

        await until(lambda: len(events()) >= len(wanted), events)
        await asyncio.to_thread(program.ask, "stop", "stopped", SECONDS)
        await asyncio.to_thread(program.wait, SECONDS)
        assert events() == wanted
        return str(started["client"])

    await send(java_cluster, topic, ["a0", "a1", "a2"])
    client_id = await with_java(["a0", "a1", "a2"])
    assert client_id.endswith("@DEFAULT")
    await send(java_cluster, topic, ["b0", "b1"])
    async with (
        Consumer(
            java_cluster.namesrv,
            group=group,
            topics=[topic],
            model="broadcasting",
            start="earliest",
            client_id=client_id,
            offsets_folder=tmp_path / ".rocketmq_offsets",
        ) as consumer,
        received(consumer) as messages,
    ):
        await until(lambda: len(messages) >= 2, lambda: messages)
    assert sorted(message.body for message in messages) == [b"b0", b"b1"]
    await send(java_cluster, topic, ["c0", "c1"])
    assert await with_java(["c0", "c1"]) == client_id


async def test_lite_pull_goes_on_between_python_and_java_and_seeks(
    java_cluster: JavaCluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic, group = "Lite", "LiteGroup"
    await make(mqadmin, java_cluster, topic, 2)
    queues = await send(java_cluster, topic, [f"a{number:02}" for number in range(20)])
    async with LitePullConsumer(
        java_cluster.namesrv, group=group, start="earliest", auto_commit=False
    ) as lite:
        await lite.subscribe(topic)
        found: list[bytes] = []
        async with asyncio.timeout(SECONDS):
            while len(found) < 20:
                found += [message.body for message in await lite.poll(1)]
        assert sorted(found) == [b"a%02d" % number for number in range(20)]
        await lite.commit()
        assert [await lite.committed(queue) for queue in queues] == [10, 10]
        await lite.seek(queues[0], 8)
        async with asyncio.timeout(SECONDS):
            again = await lite.poll(SECONDS)
        assert [message.body for message in again] == [b"a16", b"a18"]
    await send(java_cluster, topic, ["b0", "b1", "b2"])
    orders = {"namesrv": java_cluster.namesrv, "topic": topic, "group": group, "count": 3}
    program = java.start("PullConsume", **orders)
    await asyncio.to_thread(program.wait_event, "done", SECONDS)
    assert sorted(each["body"] for each in program.events("message")) == ["b0", "b1", "b2"]
    await send(java_cluster, topic, ["c0"])
    async with LitePullConsumer(java_cluster.namesrv, group=group, start="earliest") as lite:
        await lite.subscribe(topic)
        async with asyncio.timeout(SECONDS):
            while not (messages := await lite.poll(1)):
                continue
        assert [message.body for message in messages] == [b"c0"]


async def test_popped_messages_are_acknowledged_kept_longer_or_come_again(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic = "Popped"
    await make(mqadmin, java_cluster, topic, 2)
    async with SimpleConsumer(
        java_cluster.namesrv, group="PoppedGroup", topics=[topic], start="earliest"
    ) as consumer:
        # The first pop makes the group; a broker may begin it at the end of its queues.
        await consumer.receive(timeout=0)
        await send(java_cluster, topic, [f"m{number}" for number in range(6)])
        first: list[PoppedMessage] = []
        async with asyncio.timeout(SECONDS):
            while len(first) < 6:
                first += await consumer.receive(invisible=30, timeout=2)
        assert sorted(message.body for message in first) == [b"m%d" % n for n in range(6)]
        later = first.pop()
        for message in first:
            await message.ack()
        await later.change_invisible_time(1)
        again: list[PoppedMessage] = []
        async with asyncio.timeout(SECONDS):
            while not again:
                again = await consumer.receive(timeout=2)
        (message,) = again
        assert (message.body, message.topic) == (later.body, topic)
        assert message.msg_id == later.msg_id
        assert message.reconsume_times >= 1
        await message.ack()
        assert await consumer.receive(timeout=3) == []


async def test_administrators_see_a_python_consumer_and_move_it(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic, group = "Watched", "WatchedGroup"
    await make(mqadmin, java_cluster, topic, 2)
    await send(java_cluster, topic, ["0", "1", "2", "3"])
    async with (
        Consumer(java_cluster.namesrv, group=group, topics=[topic], start="earliest") as consumer,
        received(consumer) as messages,
    ):
        await until(lambda: len(messages) >= 4, lambda: messages)
        words = ("-n", java_cluster.namesrv, "-g", group)
        text = await asyncio.to_thread(mqadmin, "consumerStatus", *words, "-i", client_of(consumer))
        assert topic in text
        assert "PROP_CONSUMEORDERLY" in text
        text = await asyncio.to_thread(mqadmin, "consumerConnection", *words)
        assert "PYTHON" in text
        text = await asyncio.to_thread(mqadmin, "resetOffsetByTime", *words, "-t", topic, "-s", "0")
        await until(lambda: len(messages) >= 8, lambda: (text, messages))
    assert {message.body for message in messages} == {b"0", b"1", b"2", b"3"}


async def test_a_push_consumer_pops_where_an_administrator_has_set_it(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic, group = "PoppedByPush", "PoppingGroup"
    await make(mqadmin, java_cluster, topic, 4)
    where = ("-n", java_cluster.namesrv, "-c", CLUSTER_NAME)
    await asyncio.to_thread(mqadmin, "updateSubGroup", *where, "-g", group)
    words = (*where, "-t", topic, "-g", group, "-m", "POP", "-q", "0")
    await asyncio.to_thread(mqadmin, "setConsumeMode", *words)
    async with (
        Consumer(
            java_cluster.namesrv,
            group=group,
            topics=[topic],
            start="earliest",
            client_rebalance=False,
        ) as consumer,
        received(consumer) as messages,
    ):
        await until(
            lambda: [queue.queue_id for queue in consumer.queues] == [-1], lambda: consumer.queues
        )
        sent = [f"{number:02}" for number in range(40)]
        await send(java_cluster, topic, sent)
        await until(
            lambda: {message.keys[0] for message in messages} >= set(sent), lambda: messages
        )


async def test_the_trace_of_a_message_shows_who_sent_it_and_who_consumed_it(
    java_cluster: JavaCluster, mqadmin: Mqadmin
) -> None:
    topic, kept_in = "TracedByPython", "TracesOfPython"
    await make(mqadmin, java_cluster, topic, 1)
    await make(mqadmin, java_cluster, kept_in, 1)
    async with (
        Producer(java_cluster.namesrv, group="PythonWriters", trace=kept_in) as producer,
        Consumer(
            java_cluster.namesrv,
            group="PythonReaders",
            topics=[topic],
            start="earliest",
            trace=kept_in,
        ) as consumer,
        received(consumer) as messages,
    ):
        receipt = await producer.send(Message(topic, b"0", tags="a", keys=["o-1"]))
        await until(lambda: bool(messages), lambda: messages)
    words = ("queryMsgTraceById", "-n", java_cluster.namesrv, "-i", receipt.msg_id, "-t", kept_in)

    def has_both_ends(text: str) -> bool:
        return "PythonWriters" in text and "PythonReaders" in text

    text = await asyncio.to_thread(mqadmin.until, has_both_ends, *words)
    sent, consumed = (
        next(line.split() for line in text.splitlines() if group in line)
        for group in ("PythonWriters", "PythonReaders")
    )
    assert (sent[0], consumed[0]) == ("Pub", "Sub")
    assert "success" in sent
    assert "success" in consumed


def client_of(consumer: Consumer) -> str:
    assert consumer._service is not None
    return consumer._service.cluster.client_id
