"""Name servers and controllers that serve anyone: each is asked without a signature."""

from collections.abc import Iterable

from ...client.base.concurrent import each
from ...client.base.security import Security
from ...protocol import codes
from ...protocol.addresses import is_loopback
from ...protocol.aio.peers import Peers
from ...protocol.codec import java_properties
from ..texts import Text
from .rules import Finding

TIMEOUT_S = 5.0
NAME_SERVER, CONTROLLER = "name server", "controller"
CONFIG = {NAME_SERVER: codes.GET_NAMESRV_CONFIG, CONTROLLER: codes.GET_CONTROLLER_CONFIG}


async def of_open_servers(kind: str, addresses: Iterable[str], security: Security) -> list[Finding]:
    """The servers of this kind that say their settings to a peer without a signature, and are not
    bound to the loopback alone. RocketMQ's don't say where they are bound."""
    peers = Peers(tls=security.context)

    async def check(address: str) -> list[Finding]:
        try:
            answer = await peers.request(address, CONFIG[kind], timeout_s=TIMEOUT_S)
            if answer.code != codes.SUCCESS:
                return []
            bound = java_properties.parse((answer.body or b"").decode()).get("bindAddress", "")
        except (OSError, ValueError):  # other checks tell of a server that doesn't answer
            return []
        if not bound or is_loopback(bound):
            return []
        where = Text("controller %(address)s", address=address)
        what = Text(
            "bindAddress is %(bound)s without access control: anyone who reaches it can elect "
            "masters and remove brokers",
            bound=bound,
        )
        if kind == NAME_SERVER:
            where = Text("name server %(address)s", address=address)
            what = Text(
                "bindAddress is %(bound)s without access control: anyone who reaches it can "
                "register a false broker, which clients then send to, and delete routes",
                bound=bound,
            )
        do = Text("set authenticationEnabled, or bindAddress=127.0.0.1")
        return [Finding(where, what, do)]

    try:
        return [one for found in await each(sorted(set(addresses)), check) for one in found]
    finally:
        await peers.close()
