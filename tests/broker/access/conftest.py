"""A broker with access control, and callers that sign as one of its users."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.access import PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.security.signature import signed

from ..conftest import Caller, Config, Start

ADMIN = "admin", "admin-secret"
SHOP = "shop", "shop-secret"
ON: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"admin","password":"admin-secret"}',
}


class Signing(Caller):
    """A caller that signs as a user, or not at all."""

    def __init__(self, broker: Broker, user: tuple[str, str] | None = None, port: int = 0) -> None:
        super().__init__(broker)
        self.address = f"127.0.0.1:{port or broker.port}"
        sign = None if user is None else lambda fields, body: signed(fields, body, *user)
        self.peers = Peers(sign=sign)


Callers = Callable[..., Signing]


@pytest.fixture
async def guarded(start: Start, config: Config) -> Broker:
    """A broker that serves the administrator, and the user `shop` within its access list."""
    broker: Broker = await start(config(**ON))
    assert broker.access is not None
    broker.access.users.create(UserInfo(*SHOP))
    return broker


@pytest.fixture
async def as_user(guarded: Broker) -> AsyncIterator[Callers]:
    made: list[Signing] = []

    def make(user: tuple[str, str] | None = None, port: int = 0) -> Signing:
        made.append(Signing(guarded, user, port))
        return made[-1]

    yield make
    for caller in made:
        await caller.peers.close()


def allow(broker: Broker, resource: str, *actions: str, **more: Any) -> None:
    """Adds an entry to the access list of `shop`."""
    assert broker.access is not None
    entry = PolicyEntryInfo(resource, list(actions), more.get("ips"), more.get("decision", "Allow"))
    broker.access.lists.put("shop", [PolicyInfo(more.get("type"), [entry])])
