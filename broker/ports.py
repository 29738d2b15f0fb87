"""The ports of a broker: for clients, for quick senders, and for slaves.

They are held from the start on, since the port is part of each record, and let clients in at the
end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ..conf.secret import secret_of
from ..protocol.aio.server import Refused, listen
from ..protocol.aio.tls import server_context
from .controlled.ports import VIP_PORT_DISTANCE
from .replication.prologue import Gates
from .roles.parts import Parts

CLIENTS_PORT = (
    "a broker's listenPort, or two below it; the HTTP port of another is seven above its "
    "listenPort unless httpPort is set; `aerobee up` takes --listen-port"
)


async def listen_for_clients(broker: Parts) -> tuple[int, int]:
    """Hold the listen port and the fast port; returns both.

    OSError when a port is taken. Where any listen port will do, any fast port does, too, but the
    usual one is taken if it can be: a start on the same listen port wants it. It may be the listen
    port of another broker that starts now, so it is held at once.
    """
    config, member = broker.config, broker.membership
    bound = (None, None) if member is None else (member.ports.clients, member.ports.fast)
    listen_on = partial(broker.server.listen, config.bind_address, what=CLIENTS_PORT)
    port = await listen_on(config.listen_port, bound=bound[0])
    fast_port = max(0, port - VIP_PORT_DISTANCE)
    try:
        return port, await listen_on(fast_port, hold=not config.listen_port, bound=bound[1])
    except OSError:
        if config.listen_port:
            raise
        return port, await listen_on(0, bound=bound[1])


async def listen_for_slaves(
    broker: Parts,
) -> tuple[asyncio.Server, int, Callable[[], Awaitable[None]]]:
    """Hold the replication port; returns its server, the port, and what closes it."""
    config, member = broker.config, broker.membership
    secret = secret_of("haSecret", config.ha_secret)
    tls = None
    if config.ha_tls:
        tls = server_context(config.tls_server_cert_path, config.tls_server_key_path)

    def note_refused() -> None:
        broker.ha.refused += 1

    gates = Gates(secret, lambda host: broker.ha.acks.may_come(host), note_refused)

    def factory() -> asyncio.Protocol:
        may_come = broker.role.takes_slaves
        return gates.before(lambda: broker.ha.acks.connection()) if may_come else Refused()

    server, port = await listen(
        factory,
        config.bind_address,
        config.ha_listen_port,
        accept=False,
        bound=None if member is None else member.ports.slaves,
        tls=tls,
        what="haListenPort",
    )

    async def close() -> None:
        server.close()
        gates.close()

    return server, port, close
