"""The name servers a client was given: asked in turn, the one that works is kept.

Name servers don't know of each other, so any of them that answers is good enough. One is chosen at
random in the beginning, which spreads the clients.
"""

import logging
import os
import random
from collections.abc import Iterable

from ..protocol import codes
from ..protocol.aio.peers import Peers
from ..protocol.command import Command
from ..protocol.wire import Header
from .errors import BrokerError, ClientError, UnreachableError

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:9876"
DEFAULT_PORT = 9876
REQUEST_SECONDS = 3.0
ADDRESSES_MAX = 64  # name servers of one client


def read_addresses(name_server: str | Iterable[str] | None) -> tuple[str, ...]:
    """The addresses in "a:9876;b:9876" (commas do as well) or in a list of such texts.

    None takes the environment's NAMESRV_ADDR and, without it, 127.0.0.1:9876. A missing port is
    9876. ClientError when a text is no address.
    """
    if name_server is None:
        name_server = os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    texts = [name_server] if isinstance(name_server, str) else list(name_server)
    found: list[str] = []
    for part in (part.strip() for text in texts for part in text.replace(",", ";").split(";")):
        if part and (address := _address(part)) not in found:
            found.append(address)
    if not found:
        raise ClientError(f"no name server in {name_server!r}; give host:port;host:port")
    if len(found) > ADDRESSES_MAX:
        raise ClientError(f"{len(found)} name servers were given, the limit is {ADDRESSES_MAX}")
    return tuple(found)


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not the address of a name server; give host:port")
    return f"{host}:{port}"


class NameServers:
    """Asks the name servers; shares the connections (`peers`) of its client."""

    def __init__(self, addresses: tuple[str, ...], peers: Peers) -> None:
        self.addresses = addresses
        self._peers = peers
        self._at = random.randrange(len(addresses))  # noqa: S311

    @property
    def current(self) -> str:
        """The one that is asked first."""
        return self.addresses[self._at]

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float = REQUEST_SECONDS,
        accepted: tuple[int, ...] = (codes.SUCCESS,),
    ) -> Command:
        """The first answer that a name server gives; `timeout_s` is for each of them.

        UnreachableError when none answers, BrokerError when the answer's code is not `accepted`.
        """
        failures: list[str] = []
        for turn in range(len(self.addresses)):
            at = (self._at + turn) % len(self.addresses)
            address = self.addresses[at]
            try:
                answer = await self._peers.request(address, code, header, body, timeout_s)
            except (ConnectionError, TimeoutError) as wrong:
                log.debug("name server %s: %s", address, wrong)
                failures.append(f"{address}: {wrong}")
                continue
            self._at = at
            if answer.code not in accepted:
                what = codes.REQUEST_NAMES.get(code, str(code))
                raise BrokerError(answer.code, answer.remark, address, what)
            return answer
        raise UnreachableError(
            f"no name server answered, {len(failures)} tried ({'; '.join(failures)}); check that "
            "it runs (`aerobee up` starts one), and the address, the port and the firewall"
        )

    async def ask_all(
        self, code: int, header: Header | None = None, body: bytes = b""
    ) -> dict[str, Command]:
        """The answer of each name server, by address: for what every one of them must do."""
        found: dict[str, Command] = {}
        for address in self.addresses:
            try:
                answer = await self._peers.request(address, code, header, body, REQUEST_SECONDS)
            except (ConnectionError, TimeoutError) as wrong:
                raise UnreachableError(f"name server {address}: {wrong}") from wrong
            if answer.code != codes.SUCCESS:
                what = codes.REQUEST_NAMES.get(code, str(code))
                raise BrokerError(answer.code, answer.remark, address, what)
            found[address] = answer
        return found
