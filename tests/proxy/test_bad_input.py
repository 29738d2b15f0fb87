"""Clients and brokers that a proxy can't trust: shared ids, many ids, forged handles, nonsense."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from aerobee.protocol.bodies.route import BrokerData, TopicRouteData
from aerobee.proxy.routes.brokers import REQUEST_SECONDS
from aerobee.proxy.telemetry.clients import CLIENTS_MAX
from aerobee.testing import LocalCluster

from ..client.clock import Clock
from ..waiting import until
from .support import Client, Setup, bodies, code_of, new, setup
from .telemetry.talking import consumer, producer, talk

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def received(proxied: Setup, client: Client, topic: str, group: str) -> Any:
    """A message of a new topic."""
    await proxied.create(topic)
    await proxied.ready(client, topic, group)
    await client.send(topic, "one")
    _, (found,) = await client.receive(topic, group)
    return found


async def test_two_clients_with_one_id_both_work_and_the_one_that_stays_is_not_lost(
    proxied: Setup,
) -> None:
    await proxied.create("Twins")
    one, other = proxied.client("twin"), proxied.client("twin")
    await proxied.ready(one, "Twins", "twins")
    stream, staying = [await talk(each, consumer("twins", "Twins")) for each in (one, other)]
    await one.send("Twins", "a", "b")
    found: list[Any] = []

    async def have_both() -> bool:
        for client in (one, other):
            _, more = await client.receive("Twins", "twins", batch_size=1, auto_renew=True)
            found.extend(more)
        return len(found) >= 2

    await until(have_both, lambda: f"they got {bodies(found)}")
    assert sorted(bodies(found)) == ["a", "b"]
    # Either may acknowledge what the other got: handles belong to the id.
    assert code_of(await other.ack("Twins", "twins", *found)) == "OK"
    clients = proxied.proxy.service.clients
    known = clients.get("twin")
    assert known is not None
    stream.cancel()
    await until(lambda: len(known.streams) == 1, "the stream is not over")
    assert known.lost_at == 0  # no time of grace has begun
    await other.send("Twins", "c")
    _, last = await other.receive("Twins", "twins")
    assert bodies(last) == ["c"]
    staying.cancel()


async def test_a_hundred_thousand_client_ids_are_the_limit_and_known_ones_go_on(
    proxied: Setup,
) -> None:
    await proxied.create("Crowded")
    known = proxied.client("known")
    stream = await talk(known, producer("Crowded"))
    clients = proxied.proxy.service.clients
    for number in range(CLIENTS_MAX):
        clients.seen(f"id-{number}")
    assert len(clients) == CLIENTS_MAX == 100_000
    newcomer = proxied.client("one too many").telemetry()
    await newcomer.write(new("TelemetryCommand", settings=producer("Crowded")))
    with pytest.raises(grpc.aio.AioRpcError, match="the limit is 100000; end some"):
        await newcomer.read()
    await stream.write(new("TelemetryCommand", settings=producer("Crowded")))
    assert code_of(await stream.read()) == "OK"
    assert code_of(await known.send("Crowded", "x")) == "OK"


@pytest.mark.parametrize("what", ["group", "topic", "place"])
async def test_a_handle_of_another_group_topic_or_place_takes_no_message_away(
    proxied: Setup, what: str
) -> None:
    client = proxied.client()
    found = await received(proxied, client, f"Mine-{what}", "mine")
    await proxied.create("Other")
    await proxied.ready(client, "Other", "others")
    forged = type(found)()
    forged.CopyFrom(found)
    topic, group = f"Mine-{what}", "mine"
    if what == "group":
        group = "others"
    elif what == "topic":
        topic = "Other"
    else:
        words = found.system_properties.receipt_handle.split(" ")
        words[7] = "999999"  # a queue offset that is not there
        forged.system_properties.receipt_handle = " ".join(words)
    await client.ack(topic, group, forged)
    proxied.cluster.advance(seconds=11)
    _, again = await client.receive(f"Mine-{what}", "mine")
    assert bodies(again) == ["one"]


async def test_a_handle_of_another_cluster_is_refused(cluster: LocalCluster) -> None:
    with LocalCluster(brokerName="elsewhere") as foreign:
        async with setup(foreign) as theirs, setup(cluster) as ours:
            client = theirs.client()
            found = await received(theirs, client, "Abroad", "tourists")
            await ours.create("Abroad")
            await ours.create_group("tourists")
            refused = await ours.client().ack("Abroad", "tourists", found)
            assert code_of(refused) == "INVALID_RECEIPT_HANDLE"
            assert refused.entries[0].status.message == "cannot find broker elsewhere"
            assert code_of(await client.ack("Abroad", "tourists", found)) == "OK"


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """No frame: its length is beyond each limit."""
    await reader.read(1)
    writer.write(b"\xff" * 64)
    await reader.read()


async def no_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A frame whose header is no JSON."""
    await reader.read(1)
    text = b"{nonsense"
    writer.write(struct.pack(">II", 4 + len(text), len(text)) + text)
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The end of the connection."""
    await reader.read(1)


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never an answer."""
    await reader.read(1 << 20)
    await reader.read()


@asynccontextmanager
async def broker_that(answers: Peer) -> AsyncIterator[str]:
    """The address of something that is no broker."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answers(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()


@pytest.mark.parametrize("answers", [garbage, no_header, hang_up, silence])
async def test_a_broker_that_answers_nonsense_or_never_harms_its_own_calls_only(
    proxied: Setup, answers: Peer
) -> None:
    client = proxied.client()
    topic = f"Beside-{answers.__name__}"
    found = await received(proxied, client, topic, "readers")
    lost = type(found)()
    lost.CopyFrom(found)
    handle = found.system_properties.receipt_handle.replace("broker-a", "bad")
    lost.system_properties.receipt_handle = handle
    async with broker_that(answers) as address:
        bad = BrokerData("DefaultCluster", "bad", {0: address})
        proxied.proxy.service.brokers.learn(TopicRouteData(broker_datas=[bad]))
        failing = asyncio.create_task(client.ack(topic, "readers", lost))
        assert code_of(await client.ack(topic, "readers", found)) == "OK"
        await client.send(topic, "two")
        _, after = await client.receive(topic, "readers")
        assert bodies(after) == ["two"]
        if answers is silence:
            await Clock().advance(REQUEST_SECONDS)
        refused = await failing
    assert code_of(refused) in ("INTERNAL_SERVER_ERROR", "PROXY_TIMEOUT")
    assert refused.entries[0].status.message
