"""Outgoing connections, one per address, made when first needed and made again when lost.

Many requests share a connection; a response finds its future by its opaque. Callers that need the
same new connection wait for the same attempt. After a failed attempt comes a pause. It grows with
each failure and has a random length, so that the clients of a server that comes back don't all
connect at once.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .. import codes
from ..codec.header_json import ANSWERS
from ..command import Command
from ..wire import Header
from .attempts import Attempts
from .connection import Connection, Row
from .failures import of_connecting
from .requests import Sign
from .scheduler import Scheduler

log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0  # RocketMQ's connectTimeoutMillis
PEERS_MAX = 10_000  # addresses connected at once
# After a failed attempt; doubled with each further one in a row, and of that a random half or more.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 1.0


class RestingError(ConnectionError):
    """An attempt failed a moment ago; the next one may be made in `rest_s` seconds."""

    def __init__(self, why: str, rest_s: float) -> None:
        super().__init__(why)
        self.rest_s = rest_s


@dataclass(frozen=True, slots=True)
class _Failed:
    """The last `times` attempts failed; the next one comes after `until` (of the loop)."""

    times: int
    until: float
    why: str


class Peers:
    """Connections by address ("host:port"). Make it inside a running loop.

    `rows` is what we serve to the other end (a broker asks its clients). `sign` signs requests.
    """

    def __init__(
        self,
        rows: Mapping[int, Row] | None = None,
        *,
        on_lost: Callable[[Connection], None] | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        tls: ssl.SSLContext | None = None,
        sign: Sign | None = None,
    ) -> None:
        self._rows = rows or {}
        self._on_lost = on_lost
        self._connect_seconds = connect_seconds
        self._tls = tls
        self._sign = sign
        self._scheduler = Scheduler()
        self._open: dict[str, Connection] = {}
        self._attempts = Attempts[Connection](lambda: ConnectionError("this client is closed"))
        self._failed: dict[str, _Failed] = {}
        self._closed = False

    async def request(
        self,
        address: str,
        code: int,
        header: Header | dict[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float = 3.0,
    ) -> Command:
        """The answer of `address`; ConnectionError when it can't be reached, TimeoutError."""
        fields = header.to_fields() if isinstance(header, Header) else header
        connection = self._open.get(address)
        if connection is None or connection.is_lost:
            connection = await self.connect(address)
        try:
            return await connection.ask(code, fields, body, timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"no answer from {address} to request {code} within {timeout_s:g} s"
            ) from None

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | dict[str, str] | None = None,
        timeout_s: float = 3.0,
    ) -> Command:
        """Like `request`; ConnectionError also when the answer isn't SUCCESS."""
        answer = await self.request(address, code, header, timeout_s=timeout_s)
        if answer.code != codes.SUCCESS:
            raise ConnectionError(f"it answers {answer.code} {answer.remark}")
        return answer

    async def oneway(
        self,
        address: str,
        code: int,
        header: Header | dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Send without an answer; ConnectionError when `address` can't be reached."""
        fields = header.to_fields() if isinstance(header, Header) else header
        connection = self._open.get(address)
        if connection is None or connection.is_lost:
            connection = await self.connect(address)
        if connection.is_full:
            await connection.drained()
        connection.oneway(code, fields, body)

    def connected(self, address: str) -> Connection | None:
        """The open connection to `address`, or None."""
        found = self._open.get(address)
        return None if found is None or found.is_lost else found

    async def connect(self, address: str) -> Connection:
        """The connection to `address`, made now if there is none.

        ConnectionError when that fails, and RestingError at once in the pause after it.
        """
        if self._closed:
            raise ConnectionError(f"can't connect to {address}: this client is closed")
        found = self._open.get(address)
        if found is not None and not found.is_lost:
            return found
        return await self._attempts.join(address, lambda: self._connect(address))

    async def close(self) -> None:
        """Close every connection after what is written has gone out."""
        self._closed = True
        await self._attempts.close()
        for connection in list(self._open.values()):
            connection.close()
        for _ in range(20):
            if not self._open:
                break
            await asyncio.sleep(0.005)
        for connection in list(self._open.values()):
            connection.abort()

    async def _connect(self, address: str) -> Connection:
        if len(self._open) >= PEERS_MAX:
            raise ConnectionError(
                f"can't connect to {address}: {len(self._open)} peers are connected, the limit is "
                f"{PEERS_MAX}"
            )
        loop = asyncio.get_running_loop()
        failed = self._failed.get(address)
        if failed is not None and (left := failed.until - loop.time()) > 0:
            why = f"{failed.why}; failures in a row: {failed.times}, next try in {left:.2g} s"
            raise RestingError(why, left)
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ConnectionError(f"{address!r} is not an address of the form host:port")
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(
                        self._scheduler,
                        self._rows,
                        on_lost=lambda lost: self._lost(address, lost),
                        asks=True,
                        expected=ANSWERS,
                        sign=self._sign,
                    ),
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls,
                )
        except TimeoutError:
            why = f"can't connect to {address} within {self._connect_seconds:g} s"
            raise self._rest(address, why) from None
        except OSError as wrong:
            why = of_connecting(wrong, with_tls=self._tls is not None)
            raise self._rest(address, f"can't connect to {address}: {why}") from None
        log.debug("connected to %s%s", address, " with TLS" if self._tls is not None else "")
        self._failed.pop(address, None)
        self._open[address] = connection
        return connection

    def _rest(self, address: str, why: str) -> ConnectionError:
        before = self._failed.pop(address, None)
        times = before.times + 1 if before is not None else 1
        while len(self._failed) >= PEERS_MAX:
            del self._failed[next(iter(self._failed))]
        pause = min(PAUSE_SECONDS * 2 ** min(times - 1, 10), PAUSE_SECONDS_MAX)
        until = asyncio.get_running_loop().time() + pause * random.uniform(0.5, 1)  # noqa: S311
        self._failed[address] = _Failed(times, until, why)
        return ConnectionError(why)

    def _lost(self, address: str, connection: Connection) -> None:
        if self._open.get(address) is connection:
            del self._open[address]
            log.debug("the connection to %s is closed", address)
        if self._on_lost is not None:
            self._on_lost(connection)
