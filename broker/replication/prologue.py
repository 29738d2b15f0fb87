"""Replication connections that first prove the shared secret of master and slave (haSecret)."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import cast

from ...protocol.errors import Malformed
from ...protocol.ha_prologue import (
    NONCE_BYTES,
    MasterSide,
    PrologueRefused,
    SlaveSide,
    refusal,
)
from .master import NOT_ALLOWED

log = logging.getLogger(__name__)

PROLOGUE_SECONDS = 3.0  # as long as it may take
UNPROVEN_MAX = 64  # connections at a master whose prologue is not over
UNPROVEN_PER_ADDRESS_MAX = 8  # of these, from one address
ENDED = (
    "it closed the connection in the prologue of haSecret; set the same secret there, or leave it "
    "out here if that broker has none"
)


class Gates:
    """The connections at a master that have not proven the secret yet, the oldest first.

    `may_come(host)` says whether a slave at this address may take the log; another one is refused
    before it counts. A new connection over a limit takes the place of the oldest one, so that
    silent connections keep no slave out. `refused()` is called for each connection that failed.
    Without a secret connections are let through.
    """

    def __init__(
        self, secret: bytes, may_come: Callable[[str], bool], refused: Callable[[], None]
    ) -> None:
        self.secret = secret
        self.may_come = may_come
        self.refused = refused
        self.unproven: dict[MasterGate, None] = {}

    def before(self, inner: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """The protocol of a new connection; `inner` makes the one for after the prologue."""
        return MasterGate(self, inner) if self.secret else inner()

    def add(self, gate: "MasterGate") -> None:
        """Count a new connection. Over a limit the oldest one is closed."""
        of_address = [each for each in self.unproven if each.host == gate.host]
        if len(of_address) >= UNPROVEN_PER_ADDRESS_MAX:
            of_address[0].give_way(
                f"{len(of_address)} connections of its address have not proven haSecret, the limit "
                f"is {UNPROVEN_PER_ADDRESS_MAX}"
            )
        elif len(self.unproven) >= UNPROVEN_MAX:
            next(iter(self.unproven)).give_way(
                f"{len(self.unproven)} connections have not proven haSecret, the limit is "
                f"{UNPROVEN_MAX}"
            )
        self.unproven[gate] = None

    def close(self) -> None:
        """Close those connections."""
        for gate in list(self.unproven):
            gate.abort()


class MasterGate(asyncio.Protocol):
    """One connection of a slave, until it has proven the secret. `host` is its address."""

    def __init__(self, gates: Gates, inner: Callable[[], asyncio.Protocol]) -> None:
        self.host = ""
        self._gates = gates
        self._inner = inner
        self._side = MasterSide(gates.secret, secrets.token_bytes(NONCE_BYTES))
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host, *_ = transport.get_extra_info("peername") or ("", 0)
        self._timer = asyncio.get_running_loop().call_later(PROLOGUE_SECONDS, self._late)
        if self._gates.may_come(self.host):
            self._gates.add(self)
        else:
            self._refuse(NOT_ALLOWED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            answer = self._side.feed(data)
        except (Malformed, PrologueRefused) as wrong:
            self._refuse(str(wrong))
            return
        if answer:
            self._transport.write(answer)
        if not self._side.is_done:
            return
        self._leave()
        protocol = self._inner()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._side.rest:
            protocol.data_received(self._side.rest)

    def give_way(self, reason: str) -> None:
        """Close the connection for a newer one."""
        self._refuse(f"{reason}, and it is the oldest; try again")

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _late(self) -> None:
        if self._transport.is_closing():  # refused already, and the other end does not close
            self._transport.abort()
            return
        self._refuse(f"it has not proven haSecret within {PROLOGUE_SECONDS:g} s")

    def _refuse(self, reason: str) -> None:
        host, port, *_ = self._transport.get_extra_info("peername") or ("", 0)
        log.error("closing the slave %s:%s: %s", host, port, reason)
        self._gates.refused()
        self._gates.unproven.pop(self, None)
        self._transport.write(refusal(reason))
        self._transport.close()

    def _leave(self) -> None:
        self._gates.unproven.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


class SlaveGate(asyncio.Protocol):
    """A connection to a master, until both have proven the secret. `proven` is done then, or fails
    with a ConnectionError that has the reason."""

    def __init__(self, secret: bytes) -> None:
        self.proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._side = SlaveSide(secret, secrets.token_bytes(NONCE_BYTES))
        self._transport: asyncio.Transport

    @property
    def rest(self) -> bytes:
        """The bytes that came after the prologue."""
        return self._side.rest

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._side.hello)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ENDED)

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._side.feed(data)
        except (Malformed, PrologueRefused) as wrong:
            self._fail(str(wrong))
            self._transport.write(refusal(str(wrong)))
            self._transport.close()
            return
        if answer:
            self._transport.write(answer)
        if self._side.is_done and not self.proven.done():
            self.proven.set_result(None)

    def _fail(self, reason: str) -> None:
        if not self.proven.done():
            self.proven.set_exception(ConnectionError(reason))
