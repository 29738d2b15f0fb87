"""One client of a cluster: its connections to brokers and the groups that live in it.

Invariants: every route in use is refreshed each 30 s; a new connection sends a heartbeat before
anything else, because a broker knows consumers by connection; each known broker gets a heartbeat
each 30 s. The groups of a client rebalance together and persist their offsets each 5 s.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ...protocol import codes
from ...protocol.aio.attempts import Attempts
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.peers import Peers, RestingError
from ...protocol.aio.server import table
from ...protocol.bodies.route import MASTER_ID
from ...protocol.bodies.topic import TopicList
from ...protocol.command import Command
from ...protocol.headers.clients import UnregisterClient
from ...protocol.wire import Header
from ..base.identity import new_client_id
from ..base.responses import body_of
from ..base.security import OPEN, Security
from ..errors import (
    BrokerError,
    ClientError,
    NoAnswerError,
    UnreachableError,
    is_not_in_service,
)
from . import broker_calls, rebalance_service
from .heartbeat import ConsumerMember, Members
from .name_servers import NameServers, read_source
from .rebalance_service import RebalanceService
from .routes import RENEW_SECONDS, Routes, closed_while_waiting

log = logging.getLogger(__name__)

ROUTE_SECONDS = 30.0  # pollNameServerInterval
HEARTBEAT_SECONDS = 30.0  # heartbeatBrokerInterval
PERSIST_SECONDS = 5.0  # persistConsumerOffsetInterval
# How long after the start each of them is done for the first time, as in MQClientInstance.
FIRST_ROUTE_SECONDS, FIRST_HEARTBEAT_SECONDS, FIRST_PERSIST_SECONDS = 0.01, 1.0, 10.0
LOOK_UP_SECONDS, FIRST_LOOK_UP_SECONDS = 120.0, 10.0  # fetchNameServerAddr
DOUBTED_MAX = 1_000  # addresses of brokers that failed
REQUEST_SECONDS = 3.0  # mqClientApiTimeout


class Cluster(Routes):
    """One client: its id, connections and groups. Construct it inside a running loop.

    `name_server` as in `read_source`. Producers and consumers join with `join_producer` and
    `join_consumer` and leave with `leave`; `close` leaves for all remaining groups.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        client_id: str | None = None,
        security: Security = OPEN,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.security = security
        self.client_id = client_id or new_client_id()
        servers = read_source(name_server)
        self.members = Members(self.client_id, servers)
        self._rebalancing = RebalanceService(self._rebalance)
        self._rows = broker_calls.table_of(self.members.consumers, self.rebalance_soon)
        self._peers = Peers(
            self._rows,
            tls=security.context,
            sign=security.sign if security.signs else None,
        )
        super().__init__(NameServers(servers, self._peers))
        self._greeted: dict[str, Connection] = {}
        self._greetings: Attempts[Connection] = Attempts(closed_while_waiting)
        self._upkeep: list[asyncio.Task[None]] = []
        self._renewals: dict[str, asyncio.Task[None]] = {}  # by topic
        self._watched: dict[str, asyncio.Task[None]] = {}  # by address
        self._doubted: dict[str, float] = {}  # by address: the loop's time of the last `_doubt`
        self.without_lite_pull: set[str] = set()  # brokers that don't know LITE_PULL_MESSAGE
        self.clocks_ahead: set[str] = set()  # brokers that rejected a pop as too old

    def start(self) -> None:
        """Begin to refresh routes, to send heartbeats, to rebalance and to persist offsets."""
        if self._upkeep or self._closed:
            return
        work = {
            "routes": every(ROUTE_SECONDS, self.refresh, "refreshing routes", FIRST_ROUTE_SECONDS),
            "heartbeat": every(
                HEARTBEAT_SECONDS, self.beat, "sending heartbeats", FIRST_HEARTBEAT_SECONDS
            ),
            "offsets": every(
                PERSIST_SECONDS, self._persist, "persisting offsets", FIRST_PERSIST_SECONDS
            ),
            "rebalance": self._rebalancing.run(),
        }
        if self.name_servers.are_looked_up:
            look_up = self.name_servers.look_up
            work["name-servers"] = every(
                LOOK_UP_SECONDS, look_up, "looking up name servers", FIRST_LOOK_UP_SECONDS
            )
        self._upkeep = [
            asyncio.create_task(each, name=f"{name}-{self.client_id}")
            for name, each in work.items()
        ]

    def check_loop(self) -> None:
        """ClientError unless the caller runs in the event loop of this client: futures of one loop
        never wake another."""
        try:
            loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self.loop:
            raise other_loop(self.loop)

    async def close(self) -> None:
        """Leave with every group and close the connections. May be called twice."""
        if self._closed:
            return
        self.check_loop()
        for group in list(self.members.consumers):
            await self.leave(consumer=group)
        for group in list(self.members.producers):
            await self.leave(producer=group)
        self._closed = True
        for task in [*self._upkeep, *self._renewals.values(), *self._watched.values()]:
            task.cancel()
        await self._lookups.close()
        await self._greetings.close()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        await self._peers.close()

    # --- connections ----------------------------------------------------------------------------

    def connected(self, address: str) -> Connection | None:
        """The connection that has sent its heartbeat to this broker, if any; it may be lost."""
        return self._greeted.get(address)

    async def request(
        self,
        address: str,
        code: int,
        header: Header | dict[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float = REQUEST_SECONDS,
        begun: Awaitable[Command] | None = None,
    ) -> Command:
        """The response of a broker, whatever its code; UnreachableError or NoAnswerError.

        `begun` is the pending response if the request was sent already.
        """
        fields = header.to_fields() if isinstance(header, Header) else header
        answer = await self._request(address, code, fields, body, timeout_s, begun)
        if is_not_in_service(answer.code, answer.remark):
            self._doubt(address)
        if answer.code == codes.GO_AWAY:  # the broker is going; its address may be served again
            connection = self._greeted.pop(address, None)
            if connection is not None:
                connection.close()
                self.changes += 1
            answer = await self._request(address, code, fields, body, timeout_s)
        return answer

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | dict[str, str] | None = None,
        body: bytes = b"",
        timeout_s: float = REQUEST_SECONDS,
    ) -> Command:
        """Like `request`, but raises BrokerError unless the code is SUCCESS."""
        answer = await self.request(address, code, header, body, timeout_s)
        if answer.code != codes.SUCCESS:
            what = codes.REQUEST_NAMES.get(code, str(code))
            raise BrokerError(answer.code, answer.remark, address, what)
        return answer

    async def oneway(
        self, address: str, code: int, header: Header | dict[str, str] | None, body: bytes = b""
    ) -> None:
        """Send a oneway request; UnreachableError if no connection can be made."""
        fields = header.to_fields() if isinstance(header, Header) else header
        connection = await self._connection(address)
        if connection.is_full:
            await connection.drained()
        connection.oneway(code, fields, body)

    def serve(self, rows: Iterable[Row]) -> None:
        """Add handlers for requests from brokers."""
        self._rows |= table(rows)

    # --- groups ---------------------------------------------------------------------------------

    def join_producer(self, group: str) -> None:
        """Register a producer group; brokers learn it from the next heartbeat."""
        self.members.add_producer(group)

    def join_consumer(self, member: ConsumerMember) -> None:
        """Register a consumer; brokers learn it from the next heartbeat."""
        self.members.add_consumer(member)

    async def leave(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Unregister a group at every connected broker."""
        if producer is not None:
            self.members.producers.discard(producer)
        if consumer is not None:
            self.members.remove_consumer(consumer)
        header = UnregisterClient(self.client_id, producer, consumer).to_fields()
        waiting = [
            connection.request(codes.UNREGISTER_CLIENT, header, b"", REQUEST_SECONDS)
            for connection in self._greeted.values()
            if not connection.is_lost
        ]
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(answer, BaseException):
                log.info("leaving %s without an answer: %s", producer or consumer, answer)

    async def beat(self) -> None:
        """Send a heartbeat to each known broker: producers to masters, consumers to all."""
        if not self.members:
            return
        addresses = [
            address
            for each in self._brokers.values()
            for broker_id, address in each.items()
            if broker_id == MASTER_ID or self.members.consumers
        ]
        await asyncio.gather(*(self.beat_to(address) for address in addresses))

    async def beat_to(self, address: str) -> None:
        """Send a heartbeat to one broker; a failure is only logged, as heartbeats repeat."""
        connection = self._greeted.get(address)
        try:
            if connection is None or connection.is_lost:
                await self._connection(address)  # begins with a heartbeat
            else:
                await self.ask(address, codes.HEART_BEAT, None, self.members.body())
        except (ClientError, BrokerError) as wrong:
            log.warning("heartbeat to broker %s failed: %s", address, wrong)

    def rebalance_soon(self) -> None:
        """Request a rebalance of every group soon."""
        self._rebalancing.soon()

    # --- inside ---------------------------------------------------------------------------------

    async def _rebalance(self) -> float:
        wait = rebalance_service.SECONDS
        for member in list(self.members.consumers.values()):
            try:
                wait = min(wait, await member.rebalance())
            except Exception:
                wait = rebalance_service.MIN_SECONDS
                log.exception("rebalance of group %s failed; next try in %g s", member.group, wait)
        return wait

    async def _persist(self) -> None:
        for member in list(self.members.consumers.values()):
            await member.persist()

    async def _request(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None,
        body: bytes,
        timeout_s: float,
        begun: Awaitable[Command] | None = None,
    ) -> Command:
        if begun is None:
            connection = self._greeted.get(address)
            if connection is None or connection.is_lost:
                connection = await self._connection(address)
            begun = connection.ask(code, fields, body, timeout_s)
        try:
            return await begun
        except TimeoutError:
            self._watch(address)
            name = codes.REQUEST_NAMES.get(code, str(code))
            said = f"no answer from {address} to {name} within {max(timeout_s, 0):.3g}"
            if code in codes.READING:
                raise NoAnswerError(f"{said} s") from None
            raise NoAnswerError(f"{said} s; it may have been done all the same") from None
        except ConnectionError as wrong:
            self._doubt(address)
            raise UnreachableError(str(wrong)) from wrong

    def _doubt(self, address: str) -> None:
        """Renew, in the background, the routes that lead to a broker that fails."""
        now = self.loop.time()
        if self._closed or now - self._doubted.get(address, -RENEW_SECONDS) < RENEW_SECONDS:
            return
        while len(self._doubted) >= DOUBTED_MAX:
            del self._doubted[next(iter(self._doubted))]
        self._doubted[address] = now
        for topic in self.topics_at(address):
            if topic not in self._renewals:
                task = asyncio.create_task(self.renew(topic), name=f"renew-{topic}")
                self._renewals[topic] = task
                task.add_done_callback(partial(self._renewed_one, topic))

    def _watch(self, address: str) -> None:
        """Renew the routes to a silent broker until it is no longer a master."""
        is_master = address in self.masters.values()
        if is_master and not self._closed and address not in self._watched:
            task = asyncio.create_task(self._watch_silent_broker(address), name=f"watch-{address}")
            self._watched[address] = task
            task.add_done_callback(lambda _: self._watched.pop(address))

    async def _watch_silent_broker(self, address: str) -> None:
        end = self.loop.time() + ROUTE_SECONDS
        while address in self.masters.values() and self.loop.time() < end:
            for topic in self.topics_at(address):
                await self.renew(topic)
            await asyncio.sleep(RENEW_SECONDS)
        connection = self._greeted.get(address)
        if connection is not None and address not in self.masters.values():
            connection.close()  # its requests would wait until their timeouts

    def _renewed_one(self, topic: str, _: asyncio.Task[None]) -> None:
        del self._renewals[topic]

    async def _connection(self, address: str) -> Connection:
        self._check_open()
        found = self._greeted.get(address)
        if found is not None and not found.is_lost:
            return found
        return await self._greetings.join(address, lambda: self._greet(address))

    async def _greet(self, address: str) -> Connection:
        try:
            connection = await self._peers.connect(address)
        except RestingError as wrong:
            self._doubt(address)
            raise UnreachableError(str(wrong), wrong.rest_s, is_unsent=True) from wrong
        except ConnectionError as wrong:
            self._doubt(address)
            raise UnreachableError(str(wrong), is_unsent=True) from wrong
        if self.members.consumers or self.members.producers:
            try:
                await connection.request(
                    codes.HEART_BEAT, None, self.members.body(), REQUEST_SECONDS
                )
            except (ConnectionError, TimeoutError) as wrong:
                log.warning("the first heartbeat to broker %s failed: %s", address, wrong)
        self._greeted[address] = connection
        self.changes += 1
        return connection


def other_loop(own: asyncio.AbstractEventLoop) -> ClientError:
    """The error for a call from another loop than `own`."""
    state = "is closed" if own.is_closed() else "is another one than the caller's"
    return ClientError(
        f"the event loop in which this client was started {state}; start, use and close a client "
        "in one event loop, or take aerobee.client.blocking, which any thread may call"
    )


async def topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics, sorted."""
    code = codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    answer = await cluster.name_servers.ask(code)
    return sorted(body_of(answer, TopicList, code).topic_list)


async def every(
    seconds: float,
    work: Callable[[], Awaitable[None]],
    doing: str,
    first_seconds: float | None = None,
) -> None:
    """Call `work` every `seconds`; a failure is logged and the schedule continues.

    The first call is after `first_seconds`, if given.
    """
    wait = seconds if first_seconds is None else first_seconds
    while True:
        await asyncio.sleep(wait)
        wait = seconds
        try:
            await work()
        except Exception:
            log.exception("%s failed; next try in %g s", doing, seconds)
