"""Clusters in the process of a test: any client reaches them, and their time can be moved."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import Consumer, Message, Producer, SimpleConsumer, blocking, by_sql
from aerobee.store.base.errors import StoreError
from aerobee.testing import Clock, LocalCluster

from ..waiting import LONG

TWO_HOURS = 18  # the delay level


def messages(cluster: LocalCluster, topic: str) -> int:
    """How many messages a topic has on all brokers."""

    def count() -> int:
        return sum(
            broker.store.max_offset(topic, queue)
            for broker in cluster.brokers
            for queue in range(8)
        )

    return cluster.call(count)


def test_a_delay_of_two_hours_is_over_when_the_clock_was_moved() -> None:
    with LocalCluster() as cluster, blocking.Producer(cluster.name_server) as producer:
        producer.send(Message("orders", b"later", delay_level=TWO_HOURS))
        cluster.advance(hours=1, minutes=59)
        assert messages(cluster, "orders") == 0
        cluster.advance(minutes=1)
        assert messages(cluster, "orders") == 1


def test_a_move_of_the_clock_throws_no_client_out() -> None:
    with LocalCluster() as cluster, blocking.Producer(cluster.name_server, group="g") as producer:
        producer.send(Message("orders", b"first"))
        cluster.advance(hours=1_000)
        assert cluster.call(lambda: len(cluster.brokers[0].server.connections)) > 0
        producer.send(Message("orders", b"second"), timeout=10)
        assert messages(cluster, "orders") == 2


def test_a_late_delivery_reaches_a_consumer_that_waits() -> None:
    async def run(cluster: LocalCluster) -> bytes:
        consumer = Consumer(cluster.name_server, group="g", topics=["orders"], start="earliest")
        async with Producer(cluster.name_server) as producer, consumer:
            await producer.send(Message("orders", b"later", delay_level=TWO_HOURS))
            cluster.advance(hours=2)
            async for message in consumer:
                async with message.process():
                    return message.body
        raise AssertionError("no message came")

    with LocalCluster() as cluster:
        assert asyncio.run(asyncio.wait_for(run(cluster), LONG)) == b"later"


@pytest.mark.parametrize("kind", ["delayed", "plain", "given back"])
def test_a_simple_consumer_gets_messages_after_a_move_of_the_clock(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(cluster: LocalCluster) -> list[bytes]:
        consumer = SimpleConsumer(
            cluster.name_server, group="g", topics=["orders"], start="earliest"
        )
        async with Producer(cluster.name_server) as producer, consumer:
            level = TWO_HOURS if kind == "delayed" else 0
            await producer.send(Message("orders", b"x", delay_level=level))
            if kind == "given back":
                assert await consumer.receive(invisible=3_600, timeout=20)
            cluster.advance(hours=3)
            found = await consumer.receive(timeout=20)
            for message in found:
                await message.ack()
            return [message.body for message in found]

    with LocalCluster() as cluster:
        assert asyncio.run(asyncio.wait_for(run(cluster), LONG)) == [b"x"]
    assert "too old" not in caplog.text  # no pop was dropped, so other clients get it as well


def test_brokers_of_a_cluster_share_the_queues_of_a_topic() -> None:
    with LocalCluster(brokers=3) as cluster, blocking.Producer(cluster.name_server) as producer:
        used = {producer.send(Message("orders", b"x")).queue.broker_name for _ in range(24)}
        assert [broker.config.broker_name for broker in cluster.brokers] == [
            "broker-a", "broker-b", "broker-c",
        ]  # fmt: skip
        assert used <= {"broker-a", "broker-b", "broker-c"}


@pytest.mark.parametrize("name", ["message_delay_level", "messageDelayLevel"])
def test_settings_reach_the_brokers_by_both_their_names(name: str) -> None:
    settings: dict[str, Any] = {name: "3h"}
    with LocalCluster(**settings) as cluster:
        assert cluster.brokers[0].config.message_delay_level == "3h"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"messageDelayLevels": "3h"}, "messageDelayLevels is no setting .* mean messageDelayLev"),
        ({"speed": 1}, "speed is no setting of a broker; conf/broker.yaml has all of them"),
        ({"traceOn": True, "trace_on": True}, "the setting trace_on is given twice"),
    ],
)
def test_a_setting_that_is_none_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        LocalCluster(**settings)


async def test_a_condition_can_be_subscribed_to_without_a_setting(
    aerobee_cluster: LocalCluster,
) -> None:
    address, topics = aerobee_cluster.name_server, {"orders": by_sql("amount > 10")}
    async with Producer(address) as producer:
        for amount in ("7", "12"):
            await producer.send(Message("orders", amount.encode(), properties={"amount": amount}))
    async with Consumer(address, group="g", topics=topics, start="earliest") as consumer:
        message = await asyncio.wait_for(anext(aiter(consumer)), 60)
        assert message.body == b"12"
        await message.ack()


def test_a_restarted_broker_has_its_messages_and_its_port() -> None:
    with LocalCluster() as cluster:
        port = cluster.brokers[0].port
        with blocking.Producer(cluster.name_server) as producer:
            producer.send(Message("orders", b"x"))
        cluster.restart()
        assert cluster.brokers[0].port == port
        assert messages(cluster, "orders") == 1


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalCluster() as cluster:
        assert list(tmp_path.iterdir())
        host, port = cluster.name_server.split(":")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    cluster.stop()


def test_a_given_folder_is_kept(tmp_path: Path) -> None:
    with LocalCluster(folder=tmp_path) as cluster, blocking.Producer(cluster.name_server) as sender:
        sender.send(Message("orders", b"x"))
    with LocalCluster(folder=tmp_path) as again:
        assert messages(again, "orders") == 1


def test_what_keeps_a_broker_from_starting_is_told_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "broker-a").write_text("in the way")
    with pytest.raises(StoreError, match="is a file"):
        LocalCluster(folder=tmp_path).start()


def test_the_clock_never_goes_back() -> None:
    clock = Clock()
    before = clock()
    clock.advance(seconds=1.5)
    assert clock() >= before + 1500
    with pytest.raises(ValueError, match="go back by 1000 ms"):
        clock.advance(seconds=-1)


@pytest.mark.parametrize("brokers", [0, 65])
def test_a_cluster_of_a_strange_size_is_refused(brokers: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 64"):
        LocalCluster(brokers=brokers)
