"""A broker name whose master changes while the one before is there: counted and logged."""

import pytest
from aerobee.namesrv.master_changes import LOG_EVERY_MS
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes

from ..clocks import Clock
from .conftest import Asker, Connect, Start

ONE, TWO = "10.0.0.1:10911", "10.0.0.2:10911"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server(start: Start, clock: Clock) -> NameServer:
    return await start(clock)


async def register(asker: Asker, addr: str, broker_id: int = 0, name: str = "a") -> None:
    fields = {
        "brokerName": name, "brokerAddr": addr, "clusterName": "C", "haServerAddr": addr,
        "brokerId": str(broker_id),
    }  # fmt: skip
    assert (await asker.ask(codes.REGISTER_BROKER, fields)).code == codes.SUCCESS


async def test_two_masters_that_register_in_turn_are_logged_once_a_period(
    server: NameServer, connect: Connect, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await connect(server), await connect(server)
    await register(one, ONE)
    await register(one, ONE)
    assert server.master_changes.count == 0
    for _ in range(3):
        await register(two, TWO)
        await register(one, ONE)
    assert server.master_changes.count == 6
    [said] = caplog.messages
    assert said.startswith(f"broker name a has 2 masters: {TWO} registered now, and {ONE} is")
    assert said.endswith("stop one of them")
    clock.ms += LOG_EVERY_MS
    await register(two, TWO)
    assert len(caplog.messages) == 2


async def test_a_master_that_comes_back_elsewhere_is_no_second_one(
    server: NameServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await connect(server), await connect(server)
    await register(one, ONE)
    fields = {"brokerName": "a", "brokerAddr": ONE, "clusterName": "C", "brokerId": "0"}
    await one.ask(codes.UNREGISTER_BROKER, fields)
    await register(two, TWO)
    assert server.master_changes.count == 0
    assert caplog.messages == []


async def test_a_slave_beside_its_master_and_another_name_are_no_second_master(
    server: NameServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await connect(server), await connect(server)
    await register(one, ONE)
    await register(two, TWO, broker_id=1)
    await register(two, "10.0.0.3:10911", name="b")
    assert server.master_changes.count == 0
    assert caplog.messages == []


async def test_a_promoted_slave_is_reported_only_while_the_old_master_is_there(
    server: NameServer, connect: Connect
) -> None:
    one, two = await connect(server), await connect(server)
    await register(one, ONE)
    await register(two, TWO, broker_id=1)
    await register(two, TWO)
    assert server.master_changes.count == 1
    assert sorted(server.routes.masters_of("a")) == [("C", ONE), ("C", TWO)]
    fields = {"brokerName": "a", "brokerAddr": ONE, "clusterName": "C", "brokerId": "0"}
    await one.ask(codes.UNREGISTER_BROKER, fields)
    assert server.routes.masters_of("a") == [("C", TWO)]
