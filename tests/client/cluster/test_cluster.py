"""The client's view of the cluster: routes, brokers, heartbeats, and malformed responses."""

import asyncio
import re

import pytest
from aerobee.client import Consumer
from aerobee.client.cluster.cluster import Cluster, every
from aerobee.client.cluster.heartbeat import Members
from aerobee.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    NoAnswerError,
    NoRouteError,
    UnreachableError,
)
from aerobee.client.group.offsets import ReadFrom, RemoteOffsetStore
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from aerobee.protocol.command import OK, Response
from aerobee.protocol.headers.clients import UnregisterClient

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, until


async def test_the_client_id_is_ip_pid_and_a_time() -> None:
    cluster = Cluster("127.0.0.1:1")
    assert re.fullmatch(r"[\d.]+@\d+#\d+", cluster.client_id)
    await cluster.close()


async def test_a_new_connection_begins_with_a_heartbeat(fake: FakeCluster) -> None:
    broker = fake.broker
    broker.answers[codes.GET_BROKER_CONFIG] = lambda *_: OK
    cluster = Cluster(fake.address, client_id="me")
    cluster.join_producer("shop")
    await asyncio.gather(*(cluster.ask(broker.address, codes.GET_BROKER_CONFIG) for _ in range(5)))
    assert broker.order == [codes.HEART_BEAT] + [codes.GET_BROKER_CONFIG] * 5
    beat = HeartbeatData.decode(broker.requests[codes.HEART_BEAT][0].body)
    assert beat.client_id == "me"
    assert [data.group_name for data in beat.producer_data_set] == ["shop"]
    broker.answers[codes.GET_BROKER_RUNTIME_INFO] = lambda _, connection: connection.abort()
    with pytest.raises(UnreachableError):
        await cluster.ask(broker.address, codes.GET_BROKER_RUNTIME_INFO)
    await cluster.ask(broker.address, codes.GET_BROKER_CONFIG)
    assert len(broker.requests[codes.HEART_BEAT]) == 2
    await cluster.close()


async def test_leaving_tells_every_connected_broker(two: FakeCluster) -> None:
    cluster = Cluster(two.address, client_id="me")
    cluster.join_producer("shop")
    await cluster.route("orders")
    await cluster.beat()
    await cluster.close()
    for broker in two.brokers:
        (command,) = broker.requests[codes.UNREGISTER_CLIENT]
        assert command.header(UnregisterClient) == UnregisterClient("me", "shop", None)


async def test_a_broker_that_goes_away_is_connected_again_and_asked_once_more(
    fake: FakeCluster,
) -> None:
    replies = [Response(codes.GO_AWAY), OK]
    fake.broker.answers[codes.GET_BROKER_CONFIG] = lambda *_: replies.pop(0)
    cluster = Cluster(fake.address)
    answer = await cluster.request(fake.broker.address, codes.GET_BROKER_CONFIG)
    assert answer.code == codes.SUCCESS
    assert len(fake.broker.connections) == 2
    await cluster.close()


async def test_a_heartbeat_that_fails_is_logged_and_goes_on(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(fake.address)
    cluster.join_producer("shop")
    await cluster.route("orders")
    await cluster.beat()
    fake.broker.answers[codes.HEART_BEAT] = lambda *_: Response(codes.SYSTEM_BUSY, remark="later")
    await cluster.beat()
    assert "heartbeat to broker" in caplog.text
    assert "later" in caplog.text
    await cluster.close()


async def test_errors_say_who_what_and_how_long(fake: FakeCluster) -> None:
    cluster = Cluster(fake.address)
    fake.broker.answers[codes.GET_BROKER_CONFIG] = lambda *_: None
    clock = Clock()
    asking = asyncio.create_task(
        cluster.ask(fake.broker.address, codes.GET_BROKER_CONFIG, timeout_s=9)
    )
    await until(lambda: fake.broker.requests[codes.GET_BROKER_CONFIG])
    await clock.advance(10)
    with pytest.raises(NoAnswerError, match=r"GET_BROKER_CONFIG within 9 s$") as silent:
        await asking
    assert isinstance(silent.value, TimeoutError)
    fake.broker.answers[codes.GET_BROKER_CONFIG] = lambda *_: Response(16, remark="who are you")
    with pytest.raises(BrokerError, match=r"NO_PERMISSION \(16\).*who are you"):
        await cluster.ask(fake.broker.address, codes.GET_BROKER_CONFIG)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1") as gone:
        await cluster.ask("127.0.0.1:1", codes.GET_BROKER_CONFIG)
    assert isinstance(gone.value, ConnectionError)
    with pytest.raises(NoRouteError, match="broker nobody with id 0"):
        cluster.address_of("nobody")
    await cluster.close()
    with pytest.raises(ClosedError):
        await cluster.ask(fake.broker.address, codes.GET_BROKER_CONFIG)


async def test_a_lookup_under_way_when_the_client_closes_says_closed(fake: FakeCluster) -> None:
    fake.answers[codes.GET_ROUTEINFO_BY_TOPIC] = lambda *_: None
    cluster = Cluster(fake.address)
    waiting = asyncio.create_task(cluster.route("orders"))
    await until(lambda: bool(fake.requests[codes.GET_ROUTEINFO_BY_TOPIC]))
    await cluster.close()
    with pytest.raises(ClosedError, match="while the call was waiting"):
        await waiting


async def test_repeated_work_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    done, enough = list[int](), asyncio.Event()

    async def work() -> None:
        done.append(1)
        if len(done) == 3:
            enough.set()
        raise RuntimeError("boom")

    task = asyncio.create_task(every(0.001, work, "trying"))
    await asyncio.wait_for(enough.wait(), LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "trying failed" in caplog.text


async def test_an_answer_that_can_not_be_read_is_a_client_error(fake: FakeCluster) -> None:
    cluster = Cluster(fake.address)
    offsets = RemoteOffsetStore(cluster, "g")
    await cluster.route("orders")
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(fields={"offset": "x"})
    with pytest.raises(ClientError, match=r"QUERY_CONSUMER_OFFSET .* can't be read"):
        await offsets.read(MessageQueue("orders", "broker-a", 0), ReadFrom.STORE)
    fake.answers[codes.GET_ROUTEINFO_BY_TOPIC] = lambda *_: Response(body=b"]")
    with pytest.raises(ClientError, match="TopicRouteData"):
        await cluster.route("other")
    await cluster.close()


async def test_one_client_takes_one_consumer_per_group() -> None:
    members = Members("me")
    members.add_consumer(Consumer("127.0.0.1:1", group="g", topics=["t"]))
    members.add_consumer(Consumer("127.0.0.1:1", group="h", topics=["t"]))
    with pytest.raises(ClientError, match="group g already"):
        members.add_consumer(Consumer("127.0.0.1:1", group="g", topics=["t"]))


async def test_slaves_are_asked_only_when_that_is_allowed(fake: FakeCluster) -> None:
    route = TopicRouteData(
        None, [QueueData("a", 1, 1, 6)], [BrokerData("c", "a", {1: "one:1", 3: "three:3"})]
    )
    fake.answers[codes.GET_ROUTEINFO_BY_TOPIC] = lambda *_: Response(body=route.encode())
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    assert cluster.address_of("a", 1) == "one:1"
    assert cluster.address_of("a", 2, only=False) == "three:3"
    assert cluster.address_of("a", 0, only=False) == "one:1"
    with pytest.raises(NoRouteError, match="broker a with id 0"):
        cluster.address_of("a", 0)
    await cluster.close()
