"""The brokers behind the proxy: where they listen, and requests to them.

Addresses come from the routes that the proxy has asked for; a name that is in none is looked up in
the route of a topic.
"""

import asyncio
from collections.abc import Callable, Iterable

from ...client.base.identity import now_ms
from ...client.base.responses import body_of
from ...client.cluster.cluster import Cluster
from ...client.errors import BrokerError, ClientError
from ...protocol import codes
from ...protocol.bodies.cluster import ClusterInfo
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.command import Command
from ...protocol.wire import Header
from ..messages.status import Code, StatusError, of_broker, of_error

REQUEST_SECONDS = 3.0
NAMES_MAX = 10_000  # the one that was learnt of longest ago goes first


class Brokers:
    """The brokers of one cluster."""

    def __init__(self, cluster: Cluster, clock: Callable[[], int] = now_ms) -> None:
        self.cluster = cluster
        self.now_ms = clock
        self._addresses: dict[str, dict[int, str]] = {}

    def learn(self, data: TopicRouteData) -> None:
        """Take the addresses of a name server's answer."""
        for broker in data.broker_datas:
            name = broker.broker_name or ""
            self._addresses.pop(name, None)
            while len(self._addresses) >= NAMES_MAX:
                del self._addresses[next(iter(self._addresses))]
            self._addresses[name] = dict(broker.broker_addrs)

    def address(self, name: str) -> str | None:
        """The address of a master, or of the slave that acts for it; None if unknown."""
        known = self._addresses.get(name)
        if not known:
            return None
        return known.get(MASTER_ID) or known[min(known)]

    def master(self, name: str) -> str | None:
        """The address of a master; None if there is none, or it is unknown."""
        return self._addresses.get(name, {}).get(MASTER_ID)

    def names(self) -> list[str]:
        """The names of all known brokers."""
        return list(self._addresses)

    def name_of(self, address: str) -> str:
        """The name of the broker that listens there, "" if unknown."""
        for name, known in self._addresses.items():
            if address in known.values():
                return name
        return ""

    async def ask_any(
        self,
        code: int,
        header: Header | None = None,
        accepted: tuple[int, ...] = (codes.SUCCESS,),
    ) -> Command:
        """The response of the first master that gives one; StatusError as in `ask`."""
        if not self._masters():
            await self.learn_all()
        return await self.ask_one_of(self._masters(), code, header, accepted)

    async def ask_one_of(
        self,
        addresses: Iterable[str],
        code: int,
        header: Header | None = None,
        accepted: tuple[int, ...] = (codes.SUCCESS,),
    ) -> Command:
        """The response of the first of these that gives one; StatusError as in `ask`."""
        failure: StatusError | None = None
        for address in addresses:
            try:
                answer = await self.cluster.request(address, code, header)
            except (ClientError, BrokerError) as wrong:
                failure = of_error(wrong)
                continue
            if answer.code not in accepted:
                raise of_broker(answer.code, answer.remark)
            return answer
        raise failure or StatusError(
            Code.INTERNAL_SERVER_ERROR,
            "no broker is registered at the name server; start one that names it",
        )

    def _masters(self) -> list[str]:
        known = self._addresses.values()
        return [each[MASTER_ID] for each in known if MASTER_ID in each]

    async def learn_all(self) -> None:
        """Learn all brokers that the name server knows."""
        code = codes.GET_BROKER_CLUSTER_INFO
        try:
            answer = await self.cluster.name_servers.ask(code)
            info = body_of(answer, ClusterInfo, code)
        except (ClientError, BrokerError) as wrong:
            raise of_error(wrong) from wrong
        self.learn(TopicRouteData(broker_datas=list(info.broker_addr_table.values())))

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float = REQUEST_SECONDS,
        accepted: tuple[int, ...] = (codes.SUCCESS,),
    ) -> Command:
        """The response of a broker; StatusError unless its code is one of `accepted`."""
        try:
            answer = await self.cluster.request(address, code, header, body, timeout_s)
        except (ClientError, BrokerError) as wrong:
            raise of_error(wrong) from wrong
        if answer.code not in accepted:
            raise of_broker(answer.code, answer.remark)
        return answer

    async def first_answer(
        self, requests: list[tuple[str, int, Header]], timeout_s: float
    ) -> dict[str, Command]:
        """Ask several brokers at once; responses by address once the first has come or all failed.

        Requests still under way are not waited for.
        """
        tasks = {
            asyncio.create_task(self.ask(address, code, header, b"", timeout_s)): address
            for address, code, header in requests
        }
        pending = set(tasks)
        found: dict[str, Command] = {}
        try:
            while pending and not found:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if task.exception() is None:
                        found[tasks[task]] = task.result()
        finally:
            for task in pending:
                task.cancel()
        return found
