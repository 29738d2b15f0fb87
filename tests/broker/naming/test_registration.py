"""Registration: the topics that a broker reports to name servers, and when."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.groups import client_handlers as handlers
from aerobee.broker.server import Broker
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.security import self_signed

from ...secret_files import write_secret
from ...waiting import until
from ..conftest import Caller, Config, Start
from ..virtual_time import in_virtual_time


@pytest.fixture
async def strict() -> AsyncIterator[NameServer]:
    """A name server that deletes the topics missing in a broker's registration."""
    server = NameServer(NamesrvConfig(listen_port=0, delete_topic_with_broker_registration=True))
    await server.start()
    yield server
    await server.stop()


async def make_topic(caller: Caller, name: str, queues: int = 4) -> None:
    header = UpdateTopic(name, queues, queues, 6)
    assert (await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, header)).code == 0


async def brokers_of(namesrv: NameServer, topic: str) -> list[str | None]:
    """The brokers in the topic's route; empty if the name server doesn't know the topic."""
    peers = Peers()
    try:
        found = await peers.request(
            namesrv.address, codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, timeout_s=60
        )
    finally:
        await peers.close()
    if found.code == codes.TOPIC_NOT_EXIST:
        return []
    return [queue.broker_name for queue in TopicRouteData.decode(found.body or b"").queue_datas]


@contextmanager
def hold_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """Delays all registrations of the broker until the event is set, or the block ends."""
    gate, tell = asyncio.Event(), broker.registration._peers.request

    async def tell_later(*words: Any, **more: Any) -> Any:
        await gate.wait()
        return await tell(*words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(broker.registration._peers, "request", tell_later)
        yield gate
    gate.set()  # a stopping broker waits for those under way


async def test_the_order_conf_of_the_name_server_makes_topics_ordered(
    namesrv: NameServer,
    start: Start,
    config: Config,
) -> None:
    conf = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
    peers = Peers()
    await peers.request(namesrv.address, codes.PUT_KV_CONFIG, conf, timeout_s=60)
    await peers.close()
    broker = await start(config(namesrv_addr=namesrv.address))
    caller = Caller(broker)
    for name in ("T", "U"):
        await make_topic(caller, name)
    await broker.registration.register_all()
    topics = [broker.topics.get(name) for name in ("T", "U")]
    assert [topic.order for topic in topics if topic is not None] == [True, False]
    broker.topics.save()
    assert '"order":true' in (broker.root / "config" / "topics.json").read_text()
    version = broker.topics.version
    await broker.registration.register_all()
    assert broker.topics.version == version  # applied once
    broker.registration._put_in_order("there", b"no table")  # logged only
    await caller.peers.close()


async def test_creating_a_topic_is_answered_after_its_registration(
    namesrv: NameServer,
    start: Start,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start(config(namesrv_addr=namesrv.address))
    caller = Caller(broker)
    with hold_back(broker, monkeypatch) as gate:
        making = asyncio.create_task(make_topic(caller, "T"))
        while broker.topics.get("T") is None:
            await caller.send("other", queue_id=0)
        await caller.send("other")
        assert not making.done()
        gate.set()
        await making
    assert await brokers_of(namesrv, "T") == ["broker-a"]
    await caller.peers.close()


async def test_a_new_groups_heartbeat_is_answered_after_its_retry_topic_has_a_route(
    namesrv: NameServer,
    start: Start,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start(config(namesrv_addr=namesrv.address))
    caller = Caller(broker)
    with hold_back(broker, monkeypatch) as gate:
        beat = HeartbeatData("c", consumer_data_set=[ConsumerData("g")]).encode()
        joining = asyncio.create_task(caller.ask(codes.HEART_BEAT, body=beat))
        while broker.topics.get("%RETRY%g") is None:
            await caller.send("other", queue_id=0)
        await caller.send("other")
        assert not joining.done()
        gate.set()
        assert (await joining).code == codes.SUCCESS
        assert await brokers_of(namesrv, "%RETRY%g") == ["broker-a"]
        gate.clear()
        assert (await caller.ask(codes.HEART_BEAT, body=beat)).code == codes.SUCCESS  # nothing new
    await caller.peers.close()


async def test_a_heartbeat_does_not_wait_for_unresponsive_name_servers(
    namesrv: NameServer,
    start: Start,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start(config(namesrv_addr=namesrv.address))
    caller = Caller(broker)
    monkeypatch.setattr(handlers, "REGISTERED_S_MAX", 0.01)
    beat = HeartbeatData("c", consumer_data_set=[ConsumerData("g")]).encode()
    with hold_back(broker, monkeypatch):
        assert (await caller.ask(codes.HEART_BEAT, body=beat)).code == codes.SUCCESS
    await caller.peers.close()


async def test_a_topic_is_created_while_no_name_server_is_reachable(
    start: Start, config: Config
) -> None:
    broker = await start(config(namesrv_addr="127.0.0.1:1"))
    caller = Caller(broker)
    await make_topic(caller, "T")
    assert broker.topics.get("T") is not None
    await caller.peers.close()


async def test_an_unreachable_name_server_is_logged_once(
    start: Start,
    config: Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await start(config(namesrv_addr="127.0.0.1:1"))
    await broker.registration.register_all()
    told = [text for text in caplog.messages if text.startswith("no registration with name server")]
    assert len(told) == 1
    assert "127.0.0.1:1: can't connect to 127.0.0.1:1" in told[0]


async def test_a_broker_address_in_place_of_a_name_server_is_logged(
    start: Start,
    config: Config,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    other = await start(config())
    mine = await start(config(namesrv_addr=other.address, store_path_root_dir=str(tmp_path / "2")))
    said = f"no registration: namesrvAddr {other.address} is a broker; give the address of the name"
    assert any(text.startswith(said) for text in caplog.messages)
    mine.registration._servers = [mine.address]
    await mine.registration.register_all()
    assert f"namesrvAddr {mine.address} is this broker itself; give" in caplog.messages[-1]


async def test_registering_a_single_topic_keeps_the_routes_of_the_others(
    strict: NameServer, start: Start, config: Config
) -> None:
    broker = await start(config(namesrv_addr=strict.address, enable_single_topic_register=True))
    caller = Caller(broker)
    await make_topic(caller, "one")
    await make_topic(caller, "two")
    for name in ("one", "two", "DefaultCluster"):
        assert await brokers_of(strict, name) == ["broker-a"]
    await caller.peers.close()


async def test_single_topic_registration_can_be_enabled_at_run_time(
    strict: NameServer, start: Start, config: Config
) -> None:
    broker = await start(config(namesrv_addr=strict.address))
    caller = Caller(broker)
    await make_topic(caller, "one")
    assert await brokers_of(strict, "DefaultCluster") == []  # the name server is configured so
    change = b"enableSingleTopicRegister=true\n"
    assert (await caller.ask(codes.UPDATE_BROKER_CONFIG, None, change)).code == 0
    await make_topic(caller, "two")
    assert await brokers_of(strict, "one") == ["broker-a"]
    await caller.peers.close()


async def test_the_broker_registers_a_new_topic_with_every_name_server(
    start: Start,
    config: Config,
) -> None:
    servers = [NameServer(NamesrvConfig(listen_port=0)) for _ in range(3)]
    for server in servers:
        await server.start()
    broker = await start(config(namesrv_addr=";".join(server.address for server in servers)))
    caller = Caller(broker)
    await make_topic(caller, "T")
    for server in servers:
        assert await brokers_of(server, "DefaultCluster") == ["broker-a"]
        assert await brokers_of(server, "T") == ["broker-a"]
    assert broker.registration.registered == {server.address: True for server in servers}
    await caller.peers.close()
    for server in servers:
        await server.stop()


@in_virtual_time
async def test_the_broker_registers_again_with_a_name_server_that_lost_its_routes(
    namesrv: NameServer, start: Start, config: Config
) -> None:
    broker = await start(config(namesrv_addr=namesrv.address))
    for _ in range(2):  # after its first wait, and after the period
        namesrv.routes.unregister("DefaultCluster", broker.address, "broker-a", 0)
        assert namesrv.routes.brokers == {}
        await until(lambda: namesrv.routes.brokers, pause=0.1)
        assert await brokers_of(namesrv, "DefaultCluster") == ["broker-a"]


# --- by TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Certificates with their keys: the name server's, and an unrelated one."""
    folder = tmp_path_factory.mktemp("tls")
    found = {name: folder / f"{name}.pem" for name in ("own", "other")}
    for path in found.values():
        write_secret(path, self_signed.make(time.time()))
    return {name: str(path) for name, path in found.items()}


@pytest.fixture
async def enforcing(pems: dict[str, str]) -> AsyncIterator[NameServer]:
    """A name server that accepts TLS connections only."""
    server = NameServer(
        NamesrvConfig(listen_port=0, tls_server_mode="enforcing", tls_server_cert_path=pems["own"])
    )
    await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize(
    ("settings", "is_let_in"),
    [
        ({}, False),
        ({"use_tls": True}, True),
        ({"tls_server_mode": "enforcing"}, True),
        ({"tls_server_mode": "enforcing", "use_tls": False}, False),
        ({"use_tls": True, "tls_client_auth_server": True, "trust": "own"}, True),
        ({"use_tls": True, "tls_client_auth_server": True, "trust": "other"}, False),
        ({"use_tls": True, "tls_client_auth_server": True}, False),  # no known authority
        ({"use_tls": True, "trust": "other"}, True),
    ],
)
async def test_a_name_server_that_enforces_tls_accepts_brokers_that_use_and_trust_it(
    enforcing: NameServer,
    start: Start,
    config: Config,
    pems: dict[str, str],
    settings: dict[str, Any],
    is_let_in: bool,
) -> None:
    trust = settings.get("trust")
    rest = {name: value for name, value in settings.items() if name != "trust"}
    broker = await start(
        config(
            namesrv_addr=enforcing.address,
            tls_client_trust_cert_path="" if trust is None else pems[trust],
            **rest,
        )
    )
    assert broker.registration.registered == {enforcing.address: is_let_in}


async def test_a_trust_file_without_certificates_stops_the_start(
    start: Start,
    config: Config,
    tmp_path: Path,
) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(OSError, match=r"with tlsClientTrustCertPath .*wrong\.pem"):
        await start(
            config(use_tls=True, tls_client_auth_server=True, tls_client_trust_cert_path=str(wrong))
        )


async def test_split_registration_sends_the_topics_in_parts(
    namesrv: NameServer,
    start: Start,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"enable_split_registration": True, "split_registration_size": 3}
    broker = await start(config(namesrv_addr=namesrv.address, **settings))
    caller = Caller(broker)
    names = [f"T{number}" for number in range(7)]
    for name in names:
        await make_topic(caller, name)
    await caller.peers.close()
    told: list[int] = []
    request = broker.registration._peers.request

    async def counting(server: str, code: int, header: Any, body: bytes = b"", **more: Any) -> Any:
        if code == codes.REGISTER_BROKER:
            wrapper = RegisterBrokerBody.decode(body).topic_config_serialize_wrapper
            told.append(len(wrapper.topic_config_table))
        return await request(server, code, header, body, **more)

    monkeypatch.setattr(broker.registration._peers, "request", counting)
    for route in list(namesrv.routes.topics):
        del namesrv.routes.topics[route]  # as after a restart of the name server
    await broker.registration.register_all()
    assert max(told) == 3
    assert sum(told) == len(broker.topics.all())
    for name in names:
        assert await brokers_of(namesrv, name) == ["broker-a"]
    parts = len(told)
    await broker.registration.register_all()
    assert len(told) == 2 * parts  # each part is sent again, under its own version
