"""Telemetry, Heartbeat, NotifyClientTermination: settings, and clients that leave or are lost."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from aerobee.harness.java_side import free_ports
from aerobee.protocol.bodies.group import ExponentialRetryPolicy, GroupRetryPolicy
from aerobee.proxy.calls.telemetry import tell_changes
from aerobee.proxy.http2.balance import Worker
from aerobee.testing import LocalCluster

from ...waiting import until
from ..relay import Relay
from ..support import CLIENT_TYPES, Client, Setup, bodies, code_of, new, resource, setup
from ..telemetry.talking import consumer, producer


async def told(stream: Any, settings: Any) -> Any:
    """The settings that a client gets."""
    await stream.write(new("TelemetryCommand", settings=settings))
    answer = await stream.read()
    assert code_of(answer) == "OK", answer
    return answer.settings


async def test_a_consumer_is_told_the_rules_of_its_group(proxied: Setup) -> None:
    await proxied.create_group("told", consume_message_orderly=True, retry_max_times=4)
    settings = await told(proxied.client().telemetry(), consumer("told", "Any"))
    assert settings.subscription.fifo
    assert settings.subscription.receive_batch_size == 32
    assert settings.subscription.long_polling_timeout.seconds == 20
    assert settings.backoff_policy.max_attempts == 5
    waits = [each.seconds for each in settings.backoff_policy.customized_backoff.next]
    assert waits[:4] == [1, 5, 10, 30]
    assert waits[-1] == 7_200
    assert not settings.metric.on


async def test_a_group_can_wait_exponentially(proxied: Setup) -> None:
    policy = GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1_000, 60_000, 3))
    await proxied.create_group("growing", group_retry_policy=policy)
    settings = await told(proxied.client().telemetry(), consumer("growing", "Any"))
    backoff = settings.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.max.seconds, backoff.multiplier) == (1, 60, 3)


async def test_a_producer_is_told_limits(proxied: Setup) -> None:
    settings = await told(proxied.client().telemetry(), producer("Any"))
    assert settings.publishing.validate_message_type
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.backoff_policy.max_attempts == 3


async def test_one_client_may_be_a_consumer_and_then_a_producer(proxied: Setup) -> None:
    stream = proxied.client().telemetry()
    assert (await told(stream, consumer("both", "Any"))).HasField("subscription")
    assert (await told(stream, producer("Any"))).HasField("publishing")


async def test_a_changed_group_is_told(proxied: Setup) -> None:
    await proxied.create_group("changing", retry_max_times=4)
    stream = proxied.client().telemetry()
    await told(stream, consumer("changing", "Any"))
    await proxied.create_group("changing", retry_max_times=9)
    service = proxied.proxy.service
    service.topics.groups.forget("changing")  # as after some seconds
    await tell_changes(service)
    answer = await stream.read()
    assert answer.settings.backoff_policy.max_attempts == 10


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (new("Settings"), "there is no publishing or subscription data in settings"),
        (producer("RMQ_SYS_TRANS_HALF_TOPIC"), "cannot access system topic"),
        (consumer("CID_RMQ_SYS_x", "Any"), "cannot use system consumer group"),
    ],
)
async def test_wrong_settings_end_the_stream(proxied: Setup, settings: Any, said: str) -> None:
    stream = proxied.client().telemetry()
    await stream.write(new("TelemetryCommand", settings=settings))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    details = caught.value.details() or ""
    assert details == f"process client telemetryCommand failed. {said}"


async def test_without_a_client_id_there_is_only_that_status(proxied: Setup) -> None:
    client = proxied.client()
    client.metadata["x-mq-client-id"] = " "
    stream = client.telemetry()
    assert code_of(await stream.read()) == "CLIENT_ID_REQUIRED"
    assert await stream.read() == grpc.aio.EOF


async def test_a_heartbeat_needs_settings(proxied: Setup) -> None:
    client = proxied.client()
    fields = {"group": resource("beating"), "client_type": CLIENT_TYPES["PUSH_CONSUMER"]}
    unknown = await client.call("Heartbeat", **fields)
    assert code_of(unknown) == "UNRECOGNIZED_CLIENT_TYPE"
    await told(client.telemetry(), consumer("beating", "Any"))
    assert code_of(await client.call("Heartbeat", **fields)) == "OK"


async def working(proxied: Setup, topic: str) -> tuple[Client, Any]:
    """A push consumer that works on a message, and its telemetry stream."""
    await proxied.create(topic)
    client = proxied.client()
    stream = client.telemetry()
    await told(stream, consumer("workers", topic))
    await proxied.ready(client, topic, "workers")
    await client.send(topic, "one")
    _, found = await client.receive(topic, "workers", auto_renew=True)
    assert bodies(found) == ["one"]
    return client, stream


async def released(proxied: Setup) -> None:
    """Wait until the proxy keeps no handle any more, and the broker knows."""
    service = proxied.proxy.service

    def has_none() -> bool:
        service.clients.sweep()  # as each second
        return not (len(service.keeper) or service.keeper._tasks or proxied.proxy._leaving)

    await until(has_none, lambda: f"{len(service.keeper)} handles are kept")


async def comes_again(proxied: Setup, topic: str) -> None:
    """Another consumer gets the message a few seconds later."""
    await released(proxied)
    proxied.cluster.advance(seconds=6)
    _, found = await proxied.client().receive(topic, "workers")
    assert bodies(found) == ["one"]


async def test_a_client_that_says_good_bye_gives_its_messages_back(proxied: Setup) -> None:
    client, _ = await working(proxied, "Leaving")
    answer = await client.call("NotifyClientTermination", group=resource("workers"))
    assert code_of(answer) == "OK"
    assert code_of(await client.call("NotifyClientTermination")) == "UNRECOGNIZED_CLIENT_TYPE"
    await comes_again(proxied, "Leaving")


async def test_a_client_whose_connection_is_lost_gives_its_messages_back(
    cluster: LocalCluster,
) -> None:
    async with setup(cluster, client_grace_millis=0) as proxied:
        client, _ = await working(proxied, "Lost")
        await client.channel.close()
        await comes_again(proxied, "Lost")


async def test_an_answer_lost_with_its_connection_comes_again_though_the_client_is_back(
    proxied: Setup,
) -> None:
    (port,) = free_ports(1)
    relay = Relay(("127.0.0.1", port), ("127.0.0.1", proxied.proxy.port))
    await relay.start()
    await proxied.create("Swallowed")
    client = proxied.client("swallowing", port)
    await told(client.telemetry(), consumer("workers", "Swallowed"))
    await proxied.ready(client, "Swallowed", "workers")
    await client.send("Swallowed", "one")
    relay.lose("answers")
    receiving = asyncio.create_task(client.receive("Swallowed", "workers", auto_renew=True))
    await until(lambda: len(proxied.proxy.service.keeper), "no handle is kept")
    back = proxied.client("swallowing")
    await told(back.telemetry(), consumer("workers", "Swallowed"))
    await relay.stop()
    with pytest.raises(grpc.aio.AioRpcError):
        await receiving
    await comes_again(proxied, "Swallowed")


async def test_a_proxy_that_stops_gives_its_messages_back(cluster: LocalCluster) -> None:
    async with setup(cluster) as first:
        await working(first, "Stopped")
    async with setup(cluster) as second:
        await comes_again(second, "Stopped")


async def test_what_a_crashed_proxy_kept_comes_again_after_its_time(cluster: LocalCluster) -> None:
    async with setup(cluster) as crashed, setup(cluster) as other:
        client, _ = await working(crashed, "Crashed")
        keeper = crashed.proxy.service.keeper
        cluster.advance(seconds=55)
        await keeper.renew_due()
        # The renewed handle is in the memory of the proxy alone.
        assert len(await keeper.give_all(client.client_id, 10)) == 1
        late = {"seconds": 0}
        _, found = await other.client().receive("Crashed", "workers", long_polling_timeout=late)
        assert found == []
        cluster.advance(seconds=70)
        _, found = await other.client().receive("Crashed", "workers")
        assert bodies(found) == ["one"]
        assert code_of(await other.client().ack("Crashed", "workers", *found)) == "OK"


async def test_a_client_that_comes_to_another_worker_keeps_its_messages(
    cluster: LocalCluster,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker(Path(folder), number, 2) for number in range(2)]
        async with (
            setup(cluster, workers[0]) as first,
            setup(cluster, workers[1]) as second,
        ):
            client, _ = await working(first, "Shared")
            one, two = first.proxy.service.keeper, second.proxy.service.keeper
            await client.channel.close()
            there = second.client(client.client_id)

            async def has_come() -> int:
                await told(there.telemetry(), consumer("workers", "Shared"))
                return len(two)

            await until(has_come, "the handle stays at the first worker")
            await released(first)
            assert (len(one), len(two)) == (0, 1)
            cluster.advance(seconds=55)
            await two.renew_due()
            assert two.renewals == 1
            cluster.advance(seconds=30)
            status, found = await second.client().receive(
                "Shared", "workers", long_polling_timeout={"seconds": 0}
            )
            assert found == [], status


async def test_a_message_in_work_is_kept_invisible(proxied: Setup) -> None:
    await working(proxied, "Long")
    keeper = proxied.proxy.service.keeper
    for minutes in (0.9, 0.9, 2.9, 4.9):
        proxied.cluster.advance(minutes=minutes)
        await keeper.renew_due()
    assert (keeper.renewals, len(keeper)) == (4, 1)
    _, found = await proxied.client().receive(
        "Long", "workers", long_polling_timeout={"seconds": 0}
    )
    assert found == []
