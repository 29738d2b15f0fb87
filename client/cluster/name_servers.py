"""The name servers of a client: requests go to the current one, and on failure to the next.

Name servers are independent, so a response of any one is enough. The first one is chosen at random
to spread the clients. If a web page lists them, it is read before the first request and every two
minutes.
"""

import asyncio
import logging
import os
import random
from collections.abc import Iterable

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.command import Command
from ...protocol.wire import Header
from ..base.arguments import check_type
from ..base.identity import monotonic
from ..errors import BrokerError, ClientError, UnreachableError
from . import top_addressing

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:9876"
DEFAULT_PORT = 9876
REQUEST_SECONDS = 3.0
ADDRESSES_MAX = 64  # name servers of one client
# Every name server serves these, and no broker does.
_OF_EVERY_NAMESRV = frozenset(
    (
        codes.GET_ROUTEINFO_BY_TOPIC,
        codes.GET_BROKER_CLUSTER_INFO,
        codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    )
)


def read_source(name_server: str | Iterable[str] | None) -> str | tuple[str, ...]:
    """The URL of the page that lists the name servers, or their addresses (`read_addresses`).

    None takes the environment: NAMESRV_ADDR, else the page of ROCKETMQ_NAMESRV_DOMAIN, and without
    both 127.0.0.1:9876.
    """
    if name_server is None and not os.environ.get("NAMESRV_ADDR"):
        name_server = top_addressing.url_of_environment()
    if isinstance(name_server, str) and _is_page(name_server):
        return name_server
    return read_addresses(name_server)


def _is_page(text: str) -> bool:
    """True if the text is the URL of a page; a URL without a path is a name server's address."""
    rest = _without_scheme(text)
    return rest != text and rest.rstrip("/").count("/") > 0


def _without_scheme(text: str) -> str:
    for scheme in top_addressing.SCHEMES:
        if text.startswith(scheme):
            return text.removeprefix(scheme)
    return text


def read_addresses(name_server: str | Iterable[str] | None) -> tuple[str, ...]:
    """The addresses in "a:9876;b:9876" (commas do as well) or in a list of such texts; an address
    may be written as a URL, such as "http://a:9876".

    None takes the environment's NAMESRV_ADDR and, without it, 127.0.0.1:9876. A missing port is
    9876. ClientError when a text is no address.
    """
    if name_server is None:
        name_server = os.environ.get("NAMESRV_ADDR") or DEFAULT_ADDRESS
    check_type("name_server", name_server, Iterable, 'give "host:port" or a list of such')
    texts = [name_server] if isinstance(name_server, str) else list(name_server)
    for text in texts:
        check_type("a name server", text, str, 'give "host:port"')
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
    if _is_page(text):
        raise ClientError(f"{text!r} is a page that lists name servers; give it alone")
    text = _without_scheme(text).rstrip("/")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ClientError(
            f"{text!r} is an IPv6 address without brackets; give [{text}]:{DEFAULT_PORT}, with the "
            "port of the name server behind the brackets"
        )
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not the address of a name server; give host:port")
    return f"{host}:{port}"


class NameServers:
    """Sends requests to the name servers over the client's connections (`peers`)."""

    def __init__(self, source: str | tuple[str, ...], peers: Peers) -> None:
        self.source = source
        self.addresses: tuple[str, ...] = ()
        self._peers = peers
        self._at = 0
        self._lookup_lock = asyncio.Lock()
        if not isinstance(source, str):
            self._become(source)

    @property
    def current(self) -> str:
        """The current name server."""
        return self.addresses[self._at]

    @property
    def are_looked_up(self) -> bool:
        """True if the addresses come from a web page."""
        return isinstance(self.source, str)

    async def look_up(self) -> None:
        """Read the page again. If that fails, the known addresses stay in use.

        UnreachableError or ClientError if none are known.
        """
        if not isinstance(self.source, str):
            return
        async with self._lookup_lock:
            try:
                found = read_addresses(await top_addressing.fetch(self.source))
            except ClientError as wrong:
                if not self.addresses:
                    raise
                log.warning("keeping name servers %s: %s", ";".join(self.addresses), wrong)
                return
            if set(found) != set(self.addresses):
                log.info("name servers are %s", ";".join(found))
                self._become(found)

    def _become(self, addresses: tuple[str, ...]) -> None:
        kept = self.current if self.addresses else None
        self.addresses = addresses
        if kept in addresses:
            self._at = addresses.index(kept)
        else:
            self._at = random.randrange(len(addresses))  # noqa: S311

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float = REQUEST_SECONDS,
        accepted: tuple[int, ...] = (codes.SUCCESS,),
        unsure: tuple[int, ...] = (),
    ) -> Command:
        """The response of the first name server that responds; each has `timeout_s` seconds. On a
        code in `unsure` the next one is asked as well, which may know more.

        UnreachableError if none responds, BrokerError for a code that is not in `accepted`.
        """
        if not self.addresses:
            await self.look_up()
        failures: list[str] = []
        refused: BrokerError | None = None  # the first
        began = monotonic()
        addresses, first = self.addresses, self._at
        for step in range(len(addresses)):
            address = addresses[(first + step) % len(addresses)]
            try:
                answer = await self._peers.request(address, code, header, body, timeout_s)
            except (ConnectionError, TimeoutError) as wrong:
                log.debug("name server %s: %s", address, wrong)
                failures.append(f"{address}: {wrong}")
                continue
            is_known = answer.code in accepted
            if address in self.addresses and (is_known or refused is None):
                self._at = self.addresses.index(address)  # they may have changed meanwhile
            if not is_known:
                if answer.code == codes.REQUEST_CODE_NOT_SUPPORTED and code in _OF_EVERY_NAMESRV:
                    raise ClientError(
                        f"{address} is a broker; give the address of the name server, which is "
                        f"usually on port {DEFAULT_PORT}"
                    )
                what = codes.REQUEST_NAMES.get(code, str(code))
                refused = refused or BrokerError(answer.code, answer.remark, address, what)
                if answer.code in unsure:
                    continue
                raise refused
            return answer
        if refused is not None:
            raise refused
        raise UnreachableError(
            f"no name server answered, {len(failures)} tried in {monotonic() - began:.2g} s "
            f"({'; '.join(failures)}); check that it runs (`aerobee up` starts one), and the "
            "address, the port and the firewall"
        )

    async def ask_all(
        self, code: int, header: Header | None = None, body: bytes = b""
    ) -> dict[str, Command]:
        """The response of each name server, by address, for requests that all must execute."""
        if not self.addresses:
            await self.look_up()
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
