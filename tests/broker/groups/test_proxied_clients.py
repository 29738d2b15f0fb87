"""Clients behind a proxy: several members on one connection, told apart by their ids."""

import json
from collections.abc import Iterable

import pytest
from aerobee.broker.groups import clients
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.clients import ConsumerRunningInfo, Heartbeat
from aerobee.protocol.names import PROXIED

from ...waiting import until
from ..conftest import Caller


async def tell(
    caller: Caller,
    client_id: str,
    *,
    producers: Iterable[str] = (),
    consumers: Iterable[str] = (),
    language: str = "GO",
) -> Command:
    """A proxy's heartbeat for one of its clients."""
    joined = [
        ConsumerData(
            each, "CONSUME_POP", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [subscription("T", "*")]
        )
        for each in consumers
    ]
    body = HeartbeatData(client_id, [ProducerData(each) for each in producers], joined)
    header = Heartbeat(f"10.0.0.1:{len(client_id)}", language)
    return await caller.ask(codes.HEART_BEAT, header, body.encode())


async def connections(caller: Caller, group: str) -> list[dict[str, object]]:
    """The connections that mqadmin consumerConnection shows."""
    answer = await caller.ask(codes.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    found: list[dict[str, object]] = json.loads(answer.body or b"{}").get("connectionSet", [])
    return found


async def test_a_proxy_s_connection_has_many_members_each_as_the_proxy_says(
    broker: Broker, caller: Caller
) -> None:
    answer = await tell(caller, "a", consumers=["cg"])
    assert (answer.code, answer.fields()[PROXIED]) == (0, "true")
    await tell(caller, "bb", consumers=["cg"], language="RUST")
    await tell(caller, "ccc", consumers=["cg"], language="KLINGON")
    shown = [
        (each["clientId"], each["clientAddr"], each["language"])
        for each in await connections(caller, "cg")
    ]
    assert shown == [
        ("a", "10.0.0.1:1", "GO"),
        ("bb", "10.0.0.1:2", "RUST"),
        ("ccc", "10.0.0.1:3", "OTHER"),
    ]


async def test_a_common_heartbeat_is_answered_without_the_proxy_s_field(caller: Caller) -> None:
    answer = await caller.heartbeat(topics={"T": "*"})
    assert PROXIED not in answer.fields()


async def test_one_leaves_and_the_others_stay(broker: Broker, caller: Caller) -> None:
    for client_id in ("a", "b"):
        await tell(caller, client_id, producers=["pg"], consumers=["cg"])
    left = {"clientID": "a", "producerGroup": "pg", "consumerGroup": "cg"}
    assert (await caller.ask(codes.UNREGISTER_CLIENT, left)).code == 0
    assert [each["clientId"] for each in await connections(caller, "cg")] == ["b"]
    assert [one.client_id for one in broker.clients.producer_group("pg").values()] == ["b"]
    assert broker.clients.find_producer("a") is None
    assert broker.clients.find_producer("b") is not None


async def test_all_leave_with_the_connection_and_a_silent_one_by_itself(
    broker: Broker, caller: Caller
) -> None:
    await tell(caller, "silent", producers=["pg"], consumers=["cg"])
    limit = broker.now_ms() + 60_000
    late = next(iter(broker.clients.producer_group("pg").values()))
    late.last_ms -= 1_000_000
    await tell(caller, "heard", producers=["pg"], consumers=["cg"])
    assert not any(broker.clients.expire(limit - 500_000))  # no connection is to be closed
    assert [each["clientId"] for each in await connections(caller, "cg")] == ["heard"]
    assert [one.client_id for one in broker.clients.producer_group("pg").values()] == ["heard"]
    await caller.peers.close()
    await until(lambda: not broker.clients.consumer_group("cg"))
    assert broker.clients.producers() == {}
    assert broker.clients.bytes == 0


async def test_a_request_for_one_of_them_names_it(broker: Broker) -> None:
    asked: list[str] = []

    def on_info(header: ConsumerRunningInfo, command: Command, _: Connection) -> Response:
        asked.append(header.client_id)
        return Response(body=b"{}")

    code = codes.GET_CONSUMER_RUNNING_INFO
    proxy = Caller(broker)
    proxy.peers = Peers({code: Row(code, ConsumerRunningInfo, on_info)})
    for client_id in ("a", "b"):
        await tell(proxy, client_id, consumers=["cg"])
    admin = Caller(broker)
    fields = {"consumerGroup": "cg", "clientId": "b", "jstackEnable": "true"}
    answer = await admin.ask(code, fields)
    assert (answer.code, asked) == (0, ["b"]), answer.remark
    for one in (proxy, admin):
        await one.peers.close()


async def test_they_have_a_limit(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "PROXIED_MAX", 2)
    for client_id in ("a", "b", "a"):
        assert (await tell(caller, client_id, producers=["pg"])).code == 0
    answer = await tell(caller, "c", producers=["pg"])
    assert answer.code == codes.SYSTEM_BUSY
    assert "2 clients are behind this proxy's connection, the limit is 2" in (answer.remark or "")
    await caller.ask(codes.UNREGISTER_CLIENT, {"clientID": "a", "producerGroup": "pg"})
    assert (await tell(caller, "c", producers=["pg"])).code == 0
