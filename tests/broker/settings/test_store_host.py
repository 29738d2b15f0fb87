"""brokerIP1 as a host name: told as it is, and resolved for what is stored."""

import socket
from typing import Any

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.store_host import may_be_host, store_host
from aerobee.client import Message, Producer
from aerobee.client.admin.admin import Admin
from aerobee.namesrv.server import NameServer
from aerobee.protocol.message.message_id import parse_offset_message_id

from ..conftest import Caller, Config, Start, records

NO_NAME = "broker.example"


def knowing(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> None:
    """Give these names these addresses from now on, and no other name one."""

    def look_up(host: Any, port: Any, *_: object, **__: object) -> list[Any]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (
                socket.AF_INET6 if ":" in ip else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (ip, port),
            )
            for ip in names[host]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


async def test_a_name_is_told_as_it_is_and_messages_have_its_address(
    start: Start, config: Config, namesrv: NameServer
) -> None:
    named = config(broker_ip1="localhost", namesrv_addr=namesrv.address)
    broker: Broker = await start(named)
    async with Producer(namesrv.address) as producer, Admin(namesrv.address) as admin:
        await admin.create_topic("orders")
        sent = await producer.send(Message("orders", b"by a name"))
        route = await admin.route("orders")
        assert route.broker_datas[0].broker_addrs == {0: f"localhost:{broker.port}"}
        host, _ = parse_offset_message_id(sent.offset_msg_id)
        assert host == bytes((127, 0, 0, 1)) + broker.port.to_bytes(4, "big")
        assert (await admin.message(sent.offset_msg_id)).body == b"by a name"
    caller = Caller(broker)
    stored = records(await caller.pull("orders", queue_id=sent.queue.queue_id))[0]
    await caller.peers.close()
    assert stored.store_host == host


async def test_a_name_without_an_address_stops_the_start(
    start: Start, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowing(monkeypatch, {"127.0.0.1": ["127.0.0.1"]})
    with pytest.raises(
        OSError, match=r"^brokerIP1 is 'broker\.example', which .+ correct the"
    ) as e:
        await start(config(broker_ip1=NO_NAME))
    assert "(Name or service not known)" in str(e.value)


@pytest.mark.parametrize(
    ("addresses", "packed"),
    [
        (["fd00::1", "10.1.2.3", "10.1.2.4"], bytes((10, 1, 2, 3))),
        (["fd00::1"], bytes.fromhex("fd000000000000000000000000000001")),
    ],
)
async def test_of_several_addresses_the_first_of_ipv4_is_taken(
    addresses: list[str], packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowing(monkeypatch, {NO_NAME: addresses})
    assert await store_host(NO_NAME, 10_911) == packed + (10_911).to_bytes(4, "big")


async def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    knowing(monkeypatch, {})
    assert await store_host("10.1.2.3", 1) == bytes((10, 1, 2, 3, 0, 0, 0, 1))


@pytest.mark.parametrize("text", ["broker", "my_broker-1", "a.example.", "10.1.2.3", "fd00::1"])
def test_addresses_and_names_may_be_a_host(text: str) -> None:
    assert may_be_host(text)


@pytest.mark.parametrize(
    "text", ["", "broker:10911", "a b", "-a", "a..b", ".a", "höst", "a/b", "a" * 64, "a." * 127]
)
def test_what_no_resolver_could_know_is_no_host(text: str) -> None:
    assert not may_be_host(text)
