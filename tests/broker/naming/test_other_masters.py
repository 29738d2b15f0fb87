"""A second master of a broker name: refused at its start, reported while both run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker import server
from aerobee.broker.monitoring.metrics import families
from aerobee.broker.monitoring.overview import fault, not_ready, note, overview
from aerobee.broker.naming.other_masters import DuplicateMasterError
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.headers.namesrv import RegisterBroker

from ...steps import result_of
from ...waiting import until
from ..conftest import Config
from ..virtual_time import in_virtual_time, threads


class Masters:
    """Makes brokers of one name behind one name server, each with a store folder of its own."""

    def __init__(self, config: Config, namesrv: NameServer, folder: Path) -> None:
        self.namesrv = namesrv
        self._config = config
        self._folder = folder
        self._running: list[Broker] = []

    def config(self, store: str, **settings: object) -> BrokerConfig:
        return self._config(
            **{"namesrv_addr": self.namesrv.address} | settings,
            store_path_root_dir=str(self._folder / store),
        )

    async def start(self, store: str, **settings: object) -> Broker:
        config = self.config(store, **settings)
        broker = Broker(config, now_ms=server.wall_clock_ms, threads=threads())
        await broker.start()
        self._running.append(broker)
        return broker

    async def two(self) -> tuple[Broker, Broker]:
        """Two masters of one name, the second of which was made to start."""
        one = await self.start("one")
        return one, await self.start("two", allow_duplicate_master=True)

    async def stop(self, broker: Broker) -> None:
        self._running.remove(broker)
        await broker.stop()

    async def stop_all(self) -> None:
        for broker in list(self._running):
            await self.stop(broker)


@pytest.fixture
async def masters(config: Config, namesrv: NameServer, tmp_path: Path) -> AsyncIterator[Masters]:
    made = Masters(config, namesrv, tmp_path)
    yield made
    await made.stop_all()


async def register(namesrv: NameServer, peers: Peers, address: str) -> None:
    """Register a master of broker-a that is not there."""
    header = RegisterBroker("broker-a", address, "DefaultCluster", 0, address)
    answer = await peers.request(namesrv.address, codes.REGISTER_BROKER, header)
    assert answer.code == codes.SUCCESS


async def test_a_second_master_of_a_name_does_not_start_and_says_what_to_do(
    masters: Masters, caplog: pytest.LogCaptureFixture
) -> None:
    one = await masters.start("one")
    with pytest.raises(DuplicateMasterError) as refused:
        await masters.start("two")
    said = str(refused.value)
    assert "\n" not in said
    assert f"broker-a of cluster DefaultCluster has a living master at {one.address}" in said
    for word in ("brokerRole=SLAVE", "empty store folder", "brokerName", "allowDuplicateMaster"):
        assert word in said
    assert masters.namesrv.routes.masters_of("broker-a") == [("DefaultCluster", one.address)]
    assert "two masters" not in caplog.text


async def test_any_of_the_name_servers_may_know_of_the_other_master(masters: Masters) -> None:
    await masters.start("one")
    empty = NameServer(NamesrvConfig(listen_port=0))
    await empty.start()
    both = f"127.0.0.1:1;{empty.address};{masters.namesrv.address}"
    with pytest.raises(DuplicateMasterError):
        await masters.start("two", namesrv_addr=both)
    await empty.stop()


async def test_it_starts_once_the_other_master_has_stopped(masters: Masters) -> None:
    await masters.stop(await masters.start("one"))
    two = await masters.start("two")
    assert two.other_masters.addresses == ()


async def test_a_registration_that_a_dead_master_left_behind_stops_nobody(
    masters: Masters,
) -> None:
    peers = Peers()
    await register(masters.namesrv, peers, "127.0.0.1:1")
    moved = await masters.start("one")
    assert moved.other_masters.addresses == ()
    assert masters.namesrv.routes.member_group("", "broker-a").broker_addrs == {0: moved.address}
    await peers.close()


@in_virtual_time
async def test_a_master_starts_again_at_its_own_address_while_it_is_still_registered(
    masters: Masters,
) -> None:
    one = await masters.start("one")
    port = one.port
    await masters.stop(one)
    peers = Peers()
    await register(masters.namesrv, peers, f"127.0.0.1:{port}")
    again = await masters.start("one", listen_port=port, ha_listen_port=one.ha_port)
    assert again.other_masters.addresses == ()
    await peers.close()


async def test_a_master_of_the_name_in_another_cluster_is_another_master(
    masters: Masters, caplog: pytest.LogCaptureFixture
) -> None:
    one = await masters.start("one", broker_cluster_name="C1")
    for _ in range(2):  # a name server knows brokers by their names alone
        with pytest.raises(DuplicateMasterError) as refused:
            await masters.start("two", broker_cluster_name="C2")
        said = str(refused.value)
        assert "broker name broker-a of cluster C2 has a living master at" in said
        assert f"{one.address} of cluster C1" in said
    two = await masters.start("two", broker_cluster_name="C2", allow_duplicate_master=True)
    assert f"{two.address} registered now, and {one.address} of cluster C1 is" in caplog.text
    with pytest.raises(DuplicateMasterError):
        await masters.start("three", broker_cluster_name="C1")
    for broker, other, cluster in ((one, two, "C2"), (two, one, "C1")):
        caplog.clear()
        await broker.registration.register_all()
        words = f"this one at {broker.address} and another one at {other.address} of cluster"
        assert f"{words} {cluster};" in caplog.text
        known = masters.namesrv.routes.cluster_info()
        own = broker.config.broker_cluster_name
        assert known.cluster_addr_table == {own: ["broker-a"]}
        assert known.broker_addr_table["broker-a"].cluster == own
        assert known.broker_addr_table["broker-a"].broker_addrs == {0: broker.address}


async def test_another_broker_at_the_address_of_a_dead_master_stops_nobody(
    masters: Masters,
) -> None:
    taken_over = await masters.start("one", namesrv_addr="", broker_name="broker-b")
    peers = Peers()
    await register(masters.namesrv, peers, taken_over.address)
    await masters.start("two")
    await peers.close()


async def test_an_old_master_that_is_a_slave_by_now_stops_nobody(masters: Masters) -> None:
    slave = await masters.start("one", broker_role="SLAVE", broker_id=1)
    peers = Peers()
    await register(masters.namesrv, peers, slave.address)
    await masters.start("two")
    await peers.close()


async def test_a_slave_starts_beside_its_living_master(masters: Masters) -> None:
    await masters.start("one")
    await masters.start("two", broker_role="SLAVE", broker_id=1)


async def test_a_master_that_will_not_say_its_name_counts_as_one(masters: Masters) -> None:
    await masters.start(
        "one",
        authentication_enabled=True,
        init_authentication_user='{"username":"admin","password":"secret-1"}',
    )
    with pytest.raises(DuplicateMasterError):
        await masters.start("two")


async def test_while_two_masters_run_both_say_so_at_each_registration(
    masters: Masters, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await masters.two()
    for broker, other in ((one, two), (two, one)):
        caplog.clear()
        await broker.registration.register_all()
        assert f"has two masters: this one at {broker.address} and another one" in caplog.text
        said = f"another master of broker-a runs at {other.address}"
        assert said in str(note(broker))
        assert fault(broker) is None  # a restart would mend nothing
        assert not_ready(broker) is None
        assert result_of(overview(broker))["other_masters"] == [other.address]
        [value] = [
            value
            for name, _, _, _, values in families(broker)
            if name == "aerobee_other_masters"
            for _, value in filter(None, values)
        ]
        assert value == 1
        peers = Peers()
        answer = await peers.request(broker.address, codes.GET_BROKER_RUNTIME_INFO)
        assert KVTable.decode(answer.body or b"").table["otherMasters"] == other.address
        await peers.close()


async def test_what_is_told_of_the_other_master_ends_with_it(
    masters: Masters, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await masters.two()

    def others() -> tuple[str, ...]:
        return one.other_masters.addresses

    await one.registration.register_all()
    assert others() == (two.address,)
    # Its own registration is the last now: the name server tells nothing of the other one.
    await one.registration.register_all()
    assert others() == (two.address,)
    await masters.stop(two)
    caplog.clear()
    await one.registration.register_all()
    assert others() == ()
    assert note(one) is None
    assert "two masters" not in caplog.text


@in_virtual_time
async def test_two_masters_that_started_without_a_name_server_find_each_other_by_themselves(
    masters: Masters,
) -> None:
    port = masters.namesrv.port
    await masters.namesrv.stop()
    brokers = [await masters.start(store) for store in ("one", "two")]
    late = NameServer(NamesrvConfig(listen_port=port))
    await late.start()
    for broker, other in (brokers, brokers[::-1]):
        await until(lambda: broker.other_masters.addresses == (other.address,), pause=0.1)  # noqa: B023
    await masters.stop_all()
    await late.stop()
