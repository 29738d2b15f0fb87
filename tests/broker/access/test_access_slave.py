"""A master with access control and its slave, which signs what it asks of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.broker.replication import slave
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.security.signature import signed

from ...waiting import until
from ..conftest import Caller, Config
from ..pairs import Pair

IN_VIRTUAL_TIME = True

ADMIN = "admin", "admin-secret"
ON: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"admin","password":"admin-secret"}',
    "inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}


@pytest.fixture
async def pair(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(slave, "RETRY_SECONDS", 0.05)
    made = Pair(config, **ON)
    await made.start()
    yield made
    await made.stop()


def as_admin(caller: Caller) -> Caller:
    caller.peers = Peers(sign=lambda fields, body: signed(fields, body, *ADMIN))
    return caller


async def test_a_slave_has_its_masters_tables_and_asks_for_signatures_itself(pair: Pair) -> None:
    master, slave = as_admin(pair.ask_master), as_admin(pair.ask_slave)
    assert (await master.send("T", b"hello")).code == codes.SUCCESS
    await pair.caught_up()
    await pair.replica.tick()
    await until(lambda: pair.slave.topics.get("T") is not None)
    assert (await slave.pull("T")).code == codes.SUCCESS
    assert (await pair.caller(pair.slave).pull("T")).code == codes.NO_PERMISSION
    # Each broker has users of its own: a slave takes them, as in RocketMQ.
    made = await slave.ask(codes.AUTH_CREATE_USER, {"username": "a"}, b'{"password":"p"}')
    assert made.code == codes.SUCCESS
    assert pair.slave.access is not None
    assert pair.slave.access.users.get("a") is not None
    assert pair.master.access is not None
    assert pair.master.access.users.get("a") is None
