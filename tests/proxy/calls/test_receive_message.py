"""ReceiveMessage, with AckMessage: what was sent comes out, in time."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aerobee.client import Admin, Producer
from aerobee.client import Message as RemotingMessage
from aerobee.proxy.calls.receive_message import within_limits
from aerobee.proxy.messages.status import Code
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.testing import LocalCluster

from ...waiting import LONG, until
from ..support import FILTERS, TYPES, Setup, bodies, code_of, new, resource, setup

NOW = {"seconds": 0}


async def test_what_was_sent_is_received_once_acknowledged_never_again(proxied: Setup) -> None:
    await proxied.create("Plain")
    client = proxied.client()
    await proxied.ready(client, "Plain", "readers")
    sent = await client.send("Plain", "one", tag="t", keys=["k1", "k2"], message_type=1)
    assert code_of(sent) == "OK", sent
    status, found = await client.receive("Plain", "readers")
    assert bodies(found) == ["one"], status
    system = found[0].system_properties
    assert (system.tag, list(system.keys), system.delivery_attempt) == ("t", ["k1", "k2"], 1)
    assert code_of(await client.ack("Plain", "readers", *found)) == "OK"
    proxied.cluster.advance(seconds=30)
    status, found = await client.receive("Plain", "readers", long_polling_timeout=NOW)
    assert (status.code, status.message, found) == (40401, "no new message", [])


async def test_an_unacknowledged_message_comes_again(proxied: Setup) -> None:
    await proxied.create("Again")
    client = proxied.client()
    await proxied.ready(client, "Again", "readers")
    await client.send("Again", "one")
    _, found = await client.receive("Again", "readers")
    assert len(found) == 1
    proxied.cluster.advance(seconds=30)
    _, found = await client.receive("Again", "readers")
    assert [each.system_properties.delivery_attempt for each in found] == [2]
    assert found[0].topic.name == "Again"
    assert code_of(await client.ack("Again", "readers", *found)) == "OK"


async def test_a_receive_needs_no_settings(proxied: Setup) -> None:
    """As after a restart of the proxy, which knows no client."""
    await proxied.create("Unsettled")
    client = proxied.client()
    status, _ = await client.receive("Unsettled", "readers", long_polling_timeout=NOW)
    assert status.code == 40401


@pytest.mark.parametrize("wait_ms", [0, 300])
async def test_a_receive_waits_as_short_as_it_is_told(proxied: Setup, wait_ms: int) -> None:
    empty = f"Empty{wait_ms}"  # where no earlier test left a message
    await proxied.create("Short")
    await proxied.create(empty)
    long = asyncio.create_task(
        proxied.client().receive(empty, "others", long_polling_timeout={"seconds": 15})
    )
    status, _ = await proxied.client().receive(
        "Short", "readers", long_polling_timeout={"nanos": wait_ms * 1_000_000}
    )
    assert status.code == 40401
    assert not long.done()
    await proxied.client().send(empty, "one")
    await long


async def test_a_receive_without_a_deadline_is_served(proxied: Setup) -> None:
    await proxied.create("Endless")
    client = proxied.client()
    await proxied.ready(client, "Endless", "readers")
    waiting = asyncio.create_task(client.receive("Endless", "readers", seconds=None))
    await client.send("Endless", "one")
    _, found = await waiting
    assert bodies(found) == ["one"]


async def test_a_message_of_another_broker_is_received_at_once() -> None:
    with LocalCluster(brokers=2) as cluster:
        async with setup(cluster) as proxied:
            async with Admin(cluster.name_server) as admin:
                await admin.create_topic("Two", 1)
                await admin.create_topic("Idle", 1)
            client = proxied.client()
            await proxied.ready(client, "Two", "readers")
            long = {"seconds": 15}
            waiting = asyncio.create_task(
                client.receive("Two", "readers", broker="broker-a", long_polling_timeout=long)
            )
            idle = asyncio.create_task(
                client.receive("Idle", "readers", broker="broker-a", long_polling_timeout=long)
            )
            for _ in range(2):  # one to each broker
                await client.send("Two", "x")
            _, found = await waiting
            assert bodies(found) == ["x"]
            _, found = await client.receive("Two", "readers", broker="broker-a")
            assert bodies(found) == ["x"]
            assert not idle.done()
            idle.cancel()


async def test_only_wanted_tags_are_received(proxied: Setup) -> None:
    await proxied.create("Tagged")
    client = proxied.client()
    await proxied.ready(client, "Tagged", "readers")
    for tag in ("Aa", "BB", "C"):  # the first two have one hash
        await client.send("Tagged", tag, tag=tag)
    wanted = new("FilterExpression", expression="Aa || C")
    found: list[str] = []
    while len(found) < 2:
        _, messages = await client.receive("Tagged", "readers", filter_expression=wanted)
        found += bodies(messages)
    assert sorted(found) == ["Aa", "C"]
    proxied.cluster.advance(seconds=30)  # BB was acknowledged: it doesn't come as a retry
    everything = new("FilterExpression", expression="*")
    _, messages = await client.receive("Tagged", "readers", filter_expression=everything)
    assert "BB" not in bodies(messages)


async def test_a_condition_in_sql_selects(proxied: Setup) -> None:
    await proxied.create("Warm")
    client = proxied.client()
    await proxied.ready(client, "Warm", "readers")
    for degrees in ("3", "30"):
        await client.send("Warm", degrees, user_properties={"degrees": degrees})
    wanted = new("FilterExpression", type=FILTERS["SQL"], expression="degrees > 20")
    _, found = await client.receive("Warm", "readers", filter_expression=wanted)
    assert bodies(found) == ["30"]
    empty = new("FilterExpression", type=FILTERS["SQL"])
    status, _ = await client.receive("Warm", "readers", filter_expression=empty)
    assert status.code == 40010


async def test_invisible_durations_have_limits(proxied: Setup) -> None:
    await proxied.create("Hidden")
    client = proxied.client()
    for seconds in (9, 43_201, 10**13):
        status, _ = await client.receive(
            "Hidden", "readers", invisible_duration={"seconds": seconds}
        )
        assert status.code == 40011, seconds


async def test_bodies_of_remoting_producers_are_handed_out_unpacked(proxied: Setup) -> None:
    await proxied.create("Zipped")
    client = proxied.client()
    await proxied.ready(client, "Zipped", "readers")
    for kind in ("zlib", "lz4", "zstd"):
        producer = Producer(proxied.cluster.name_server, compression=kind)
        async with producer:
            await producer.send(RemotingMessage("Zipped", kind.encode() * 4_000))
        _, (found,) = await client.receive("Zipped", "readers")
        assert found.body == kind.encode() * 4_000
        assert found.system_properties.body_encoding == 1


async def test_a_message_that_failed_too_often_goes_to_the_dead_letters(proxied: Setup) -> None:
    await proxied.create("Failing")
    await proxied.create_group("failing", retry_max_times=1)
    client = proxied.client()
    await proxied.ready(client, "Failing", "failing")
    await client.send("Failing", "poison", message_id="POISON")
    for attempt in (1, 2):
        _, (found,) = await client.receive("Failing", "failing")
        assert found.system_properties.delivery_attempt == attempt
        proxied.cluster.advance(seconds=30)
    async with Admin(proxied.cluster.name_server) as admin, asyncio.timeout(LONG):
        topics: list[str] = []
        while "%DLQ%failing" not in topics:  # until the broker has it for the third time
            _, found = await client.receive("Failing", "failing", long_polling_timeout=NOW)
            assert found == []
            topics = await admin.topics()
        (queue,) = (await admin.topic_stats("%DLQ%failing")).offset_table.values()
    assert queue.max_offset == 1


async def test_a_call_that_is_cancelled_gives_back_what_was_popped(proxied: Setup) -> None:
    await proxied.create("Cancelled")
    client = proxied.client()
    await proxied.ready(client, "Cancelled", "readers")
    queue = new("MessageQueue", topic=resource("Cancelled"))
    stream = client.stream(
        "ReceiveMessage",
        group=resource("readers"),
        message_queue=queue,
        batch_size=1,
        invisible_duration={"seconds": 600},
        long_polling_timeout={"seconds": 10},
    )
    reading = asyncio.ensure_future(stream.read())
    await client.call("QueryRoute", topic=resource("Cancelled"))  # the pop waits by now
    stream.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await client.call("QueryRoute", topic=resource("Cancelled"))
    await client.send("Cancelled", "one")  # the pop gets it, and its client is gone
    found: list[str] = []

    async def has_come() -> bool:
        proxied.cluster.advance(seconds=10)
        _, messages = await client.receive("Cancelled", "readers", long_polling_timeout=NOW)
        found.extend(bodies(messages))
        return bool(found)

    await until(has_come, "the message does not come again")
    assert found == ["one"]


async def test_a_receive_repeated_with_its_attempt_id_gets_the_ordered_messages_again(
    proxied: Setup,
) -> None:
    """A client whose call failed repeats it with the same id; the group may not go on past it."""
    await proxied.create("Attempted", "FIFO", queues=1)
    await proxied.create_group("repeaters", consume_message_orderly=True)
    client = proxied.client()
    await proxied.ready(client, "Attempted", "repeaters")
    sent = await client.send("Attempted", "one", message_group="g", message_type=TYPES["FIFO"])
    assert code_of(sent) == "OK", sent

    async def received(attempt_id: str) -> list[str]:
        _, found = await client.receive(
            "Attempted", "repeaters", attempt_id=attempt_id, long_polling_timeout=NOW
        )
        return bodies(found)

    assert await received("first") == ["one"]
    assert await received("second") == []
    assert await received("first") == ["one"]


async def test_a_receive_beyond_the_broker_s_limit_of_long_polls_is_refused() -> None:
    with LocalCluster(max_pop_polling_size=0) as cluster:
        async with setup(cluster) as proxied:
            await proxied.create("Crowded")
            status, found = await proxied.client().receive("Crowded", "readers")
            assert (Code(status.code).name, found) == ("TOO_MANY_REQUESTS", []), status


@pytest.mark.parametrize(
    ("wanted", "answer_in_s", "waits"),
    [(1_000, None, 2_000), (3_000, None, 3_000), (9_000, None, 4_000), (3_000, 1.5, 1_500)],
)
def test_a_receive_waits_within_the_limits_of_the_settings_and_of_its_deadline(
    wanted: int, answer_in_s: float | None, waits: int
) -> None:
    config = ProxyConfig(
        grpc_client_consumer_min_long_polling_timeout_millis=2_000,
        grpc_client_consumer_max_long_polling_timeout_millis=4_000,
    )
    service: Any = SimpleNamespace(config=config)
    call: Any = SimpleNamespace(answer_in_s=lambda: answer_in_s)
    assert within_limits(service, call, wanted) == waits


async def test_the_reserve_and_the_period_of_heartbeats_are_those_of_the_settings(
    proxied: Setup,
) -> None:
    settings: dict[str, Any] = {
        "long_polling_reserve_time_in_millis": 500,
        "transaction_heartbeat_period_second": 3,
    }
    async with setup(proxied.cluster, **settings) as another:
        assert another.proxy.shared.answer_margin_s == 0.5
        assert another.proxy.service.membership.own_heartbeat_s == 3
