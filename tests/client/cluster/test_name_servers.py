"""Name servers: notation of addresses, and failover to the next."""

from collections.abc import Iterator

import pytest
from aerobee.client import Admin, Message, Producer
from aerobee.client.cluster.name_servers import (
    ADDRESSES_MAX,
    NameServers,
    read_addresses,
    read_source,
)
from aerobee.client.cluster.routes import Routes
from aerobee.client.errors import BrokerError, ClientError, NoRouteError, UnreachableError
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import OK
from aerobee.testing.cluster import LocalCluster

from ..fakes import FakeCluster, FakeServer

NOBODY = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as one:
        yield one


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1;b:2", ("a:1", "b:2")),
        ("a:1,b:2", ("a:1", "b:2")),
        (["a:1", "b:2;c"], ("a:1", "b:2", "c:9876")),
        (" a:1 ;; a:1", ("a:1",)),
        ("[::1]:1;[::1]", ("[::1]:1", "[::1]:9876")),
        ("http://a:1;https://b:2/", ("a:1", "b:2")),
        ("http://a", ("a:9876",)),
    ],
)
def test_addresses_are_read_from_a_text_or_a_list(
    given: str | list[str], expected: tuple[str, ...]
) -> None:
    assert read_addresses(given) == expected


def test_none_means_the_environment_and_then_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert read_addresses(None) == ("a:1", "b:2")
    monkeypatch.delenv("NAMESRV_ADDR")
    assert read_addresses(None) == ("127.0.0.1:9876",)


@pytest.mark.parametrize("given", ["", ";", "a:b", "a:0", "a:70000", ":1", []])
def test_what_is_no_address_is_refused_with_the_form_to_give(given: str | list[str]) -> None:
    with pytest.raises(ClientError, match="host:port"):
        read_addresses(given)


@pytest.mark.parametrize(("given", "do"), [("::1", "[::1]:9876"), ("a:1;fe80::1:2", "[fe80::1:2]")])
def test_an_ipv6_address_without_brackets_is_refused_with_them(given: str, do: str) -> None:
    with pytest.raises(ClientError, match="is an IPv6 address without brackets") as refused:
        read_addresses(given)
    assert do in str(refused.value)


def test_a_url_with_a_path_is_a_page_and_one_without_is_a_name_server() -> None:
    page = "http://a:8080/rocketmq/nsaddr"
    assert read_source(page) == page
    assert read_source("http://a:9876") == read_source("http://a:9876/") == ("a:9876",)
    with pytest.raises(ClientError, match="give it alone"):
        read_source(f"b:1;{page}")


def test_too_many_addresses_are_refused_with_the_limit() -> None:
    with pytest.raises(ClientError, match=f"the limit is {ADDRESSES_MAX}"):
        read_addresses([f"host{at}:1" for at in range(ADDRESSES_MAX + 1)])


async def test_the_next_one_is_asked_when_one_is_gone_and_it_is_kept() -> None:
    server, peers = FakeServer(), Peers()
    await server.start()
    server.answers[codes.GET_BROKER_CLUSTER_INFO] = lambda *_: OK
    servers = NameServers((NOBODY, server.address), peers)
    for _ in range(2):
        assert (await servers.ask(codes.GET_BROKER_CLUSTER_INFO)).code == codes.SUCCESS
        assert servers.current == server.address
    await peers.close()
    await server.stop()


async def test_a_broker_that_is_taken_for_a_name_server_is_told(cluster: LocalCluster) -> None:
    address = cluster.brokers[0].address
    with pytest.raises(ClientError) as raised:
        async with Producer(address) as producer:
            await producer.send(Message("orders", b"x"))
    said = f"{address} is a broker; give the address of the name server, which is usually on port"
    assert str(raised.value) == f"{said} 9876"
    for ask in (Admin.topics, Admin.cluster_info):
        with pytest.raises(ClientError, match="is a broker; give the address of the name server"):
            async with Admin(address) as admin:
                await ask(admin)


async def test_when_none_answers_each_one_and_what_to_check_is_named() -> None:
    peers = Peers()
    servers = NameServers((NOBODY, "127.0.0.1:2"), peers)
    with pytest.raises(UnreachableError, match="2 tried") as raised:
        await servers.ask(codes.GET_BROKER_CLUSTER_INFO)
    for part in (NOBODY, "127.0.0.1:2", "check that it runs"):
        assert part in str(raised.value)
    await peers.close()


async def test_a_refusal_is_an_answer_and_not_a_reason_to_ask_the_next() -> None:
    server, peers = FakeServer(), Peers()
    await server.start()
    servers = NameServers((server.address,), peers)
    with pytest.raises(BrokerError, match="not in this test") as raised:
        await servers.ask(codes.GET_NAMESRV_CONFIG)
    assert raised.value.code == codes.REQUEST_CODE_NOT_SUPPORTED
    assert server.address in str(raised.value)
    await peers.close()
    await server.stop()


async def test_a_topic_that_one_does_not_know_is_asked_of_the_next() -> None:
    restarted, other, peers = FakeCluster(0), FakeCluster(), Peers()
    other.topics["orders"] = 4
    for server in (restarted, other):
        await server.start()
    routes = None
    while not restarted.requests or routes is None:  # the first one is chosen at random
        servers = NameServers((restarted.address, other.address), peers)
        routes = Routes(servers)
        assert (await routes.route_data("orders")).queue_datas
        assert servers.current == other.address
    del other.topics["orders"]
    for gone in (other, restarted):
        with pytest.raises(NoRouteError):
            await routes.route_data("orders")
        await gone.stop()
    await peers.close()
