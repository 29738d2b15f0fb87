"""Keeps the name servers informed: who this broker is and which topics it has.

Every name server is told everything each period, and a changed topic at once (the changes of one
loop turn together, or with enableSingleTopicRegister each by itself). The connection it went over
stays open: when it closes, the name server takes the broker out. One that can't be reached is tried
again the next time; the others don't wait.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import NamedTuple

from ..protocol import codes
from ..protocol.bodies.cluster import KVTable
from ..protocol.bodies.data_version import DataVersion
from ..protocol.bodies.register import RegisterBrokerBody
from ..protocol.bodies.route import QueueData, TopicRouteData
from ..protocol.bodies.topic import TopicConfig, TopicConfigAndMappingSerializeWrapper
from ..protocol.command import Command
from ..protocol.headers.namesrv import (
    BrokerIdentity,
    RegisterBroker,
    RegisterBrokerAnswer,
    RegisterTopic,
)
from ..store.errors import StoreError
from .config import BrokerConfig
from .outgoing import outgoing_peers
from .topics import READ_WRITE, Topics

log = logging.getLogger(__name__)

TIMEOUT_S = 24.0  # RocketMQ's registerBrokerTimeoutMills
PERIOD_S_MIN, PERIOD_S_MAX = 10.0, 60.0
UNREGISTER_TIMEOUT_S = 3.0
TOPIC_TIMEOUT_S = 3.0  # for a topic that is told by itself


class Master(NamedTuple):
    """Where a slave's master is, both "" when there is none: its address, that for replication."""

    address: str
    ha_address: str


NO_MASTER = Master("", "")


class Registration:
    """Registers one broker with all its name servers. OSError for an unusable certificate file."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        address: str,
        ha_address: str,
        on_master: Callable[[Master], None] | None = None,
    ) -> None:
        """A slave gives `on_master`, which is told where its master is whenever that changes."""
        self._config = config
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        self._servers = [a for a in (config.namesrv_addr or "").replace(",", ";").split(";") if a]
        self._peers = outgoing_peers(config)
        self._on_master = on_master
        self._masters: dict[str, Master] = {}  # as each name server says
        self._master = NO_MASTER
        self._changed: dict[str, TopicConfig] = {}
        self._whole: tuple[object, list[bytes]] = (None, [])  # what those texts were made of
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None
        self._away: set[str] = set()  # name servers that don't answer, told once each time
        self.registered: dict[str, bool] = dict.fromkeys(self._servers, False)

    async def start(self) -> None:
        """Register everywhere now, then again and again."""
        self._topics.on_change = self._on_change
        if self._servers:
            self._topics.told = self.told
        await self._register_all()
        self._timer = asyncio.create_task(self._run(), name="registration")

    async def stop(self) -> None:
        """Take this broker out of every name server that can still be reached."""
        self._topics.on_change = lambda _: None
        self._topics.told = None
        for task in [*self._tasks, *([self._timer] if self._timer else [])]:
            task.cancel()
        header = BrokerIdentity(
            self._config.broker_name,
            self._address,
            self._config.broker_cluster_name,
            self._config.broker_id,
        )
        waits = [
            self._peers.request(
                server, codes.UNREGISTER_BROKER, header, timeout_s=UNREGISTER_TIMEOUT_S
            )
            for server in self._servers
            if self._peers.connected(server) is not None
        ]
        await asyncio.gather(*waits, return_exceptions=True)
        await self._peers.close()

    async def told(self, seconds: float) -> None:
        """Returns when the name servers know what changed before, or can't be told in time."""
        self._send_changes()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)

    def _on_change(self, config: TopicConfig) -> None:
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._send_changes)
        self._changed[config.topic_name or ""] = config

    def _send_changes(self) -> None:
        changed, self._changed = self._changed, {}
        if not changed:
            return
        single = self._config.enable_single_topic_register
        body = b"" if single else self._body(changed, self._topics.version)
        for server in self._servers:
            work = self._tell_each(server, changed) if single else self._register(server, body)
            task = asyncio.create_task(work, name=f"register-{server}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell_each(self, server: str, topics: dict[str, TopicConfig]) -> None:
        """Each topic by a request of its own, of which a name server concludes nothing else."""
        for name, config in self._usable(topics).items():
            queues = QueueData(
                self._config.broker_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm,
                config.topic_sys_flag,
            )
            body = TopicRouteData(queue_datas=[queues]).encode()
            try:
                await self._peers.request(
                    server,
                    codes.REGISTER_TOPIC_IN_NAMESRV,
                    RegisterTopic(name),
                    body,
                    timeout_s=TOPIC_TIMEOUT_S,
                )
            except (ConnectionError, TimeoutError) as wrong:
                log.warning(
                    "name server %s: %s; topic %s is told with the rest", server, wrong, name
                )
                return

    async def _run(self) -> None:
        period = self._config.register_name_server_period / 1000
        period = max(PERIOD_S_MIN, min(period, PERIOD_S_MAX))
        await asyncio.sleep(PERIOD_S_MIN)
        while True:
            await self._register_all()
            await asyncio.sleep(period)

    async def _register_all(self) -> None:
        bodies = self._whole_bodies()
        await asyncio.gather(*(self._register_parts(server, bodies) for server in self._servers))

    async def _register_parts(self, server: str, bodies: list[bytes]) -> None:
        for body in bodies:
            await self._register(server, body)
            if not self.registered[server]:
                return

    async def _register(self, server: str, body: bytes) -> None:
        header = RegisterBroker(
            self._config.broker_name,
            self._address,
            self._config.broker_cluster_name,
            self._config.broker_id,
            self._ha_address,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        try:
            answer = await self._peers.request(
                server, codes.REGISTER_BROKER, header, body, timeout_s=TIMEOUT_S
            )
        except (ConnectionError, TimeoutError) as wrong:
            if server not in self._away:
                log.warning("no registration with name server %s: %s; trying again", server, wrong)
            self._away.add(server)
            self.registered[server] = False
            self._masters.pop(server, None)  # it may be long out of date when it is back
            return
        self._away.discard(server)
        if answer.code != codes.SUCCESS:
            log.warning("name server %s declined: %s %s", server, answer.code, answer.remark)
        elif not self.registered[server]:
            log.info("registered with name server %s", server)
        self.registered[server] = answer.code == codes.SUCCESS
        if answer.code != codes.SUCCESS:
            return
        if answer.body:
            self._put_in_order(server, answer.body)
        if self._on_master is not None:
            self._take_master(server, answer, self._on_master)

    def _take_master(
        self, server: str, answer: Command, on_master: Callable[[Master], None]
    ) -> None:
        """What the answer to a slave's registration says of its master."""
        found = answer.header(RegisterBrokerAnswer)
        self._masters[server] = Master(found.master_addr or "", found.ha_addr or "")
        # One that was restarted a moment ago knows of no master yet: the others' word counts.
        known = (self._masters.get(each, NO_MASTER) for each in self._servers)
        master = next((each for each in known if each.address), NO_MASTER)
        if master != self._master:
            self._master = master
            on_master(master)

    def _put_in_order(self, server: str, body: bytes) -> None:
        """The answer to a registration brings the order conf of all topics."""
        try:
            names = KVTable.decode(body).table
            self._topics.put_in_order(names)
        except (ValueError, StoreError) as wrong:
            log.warning("the order conf of name server %s is not taken: %s", server, wrong)

    def _whole_bodies(self) -> list[bytes]:
        """All topics: the texts of the last time when nothing has changed since.

        With enableSplitRegistration at most splitRegistrationSize topics a text. Name servers pass
        over a text whose version they know, so each has another; the last one has the table's.
        """
        config, topics = self._config, self._topics
        size = config.split_registration_size if config.enable_split_registration else 0
        state = (topics.version, config.broker_permission, size)
        if state != self._whole[0]:
            found = list(topics.all().items())
            step = size or max(1, len(found))
            parts = [dict(found[at : at + step]) for at in range(0, len(found), step)] or [{}]
            versions = [topics.version]
            for _ in parts[1:]:
                versions.append(versions[-1].following(versions[-1].timestamp))
            bodies = map(self._body, parts, reversed(versions))
            self._whole = (state, list(bodies))
        return self._whole[1]

    def _body(self, topics: dict[str, TopicConfig], version: DataVersion) -> bytes:
        """The topics as they may be used here, under a version of the whole table."""
        wrapper = TopicConfigAndMappingSerializeWrapper(self._usable(topics), version)
        return RegisterBrokerBody(wrapper).encode()

    def _usable(self, topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
        mask = self._config.broker_permission
        if mask & READ_WRITE == READ_WRITE:
            return topics
        return {name: _restricted(config, mask) for name, config in topics.items()}


def _restricted(config: TopicConfig, mask: int) -> TopicConfig:
    return TopicConfig(
        config.topic_name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm & mask,
        config.topic_filter_type,
        config.topic_sys_flag,
        config.order,
        config.attributes,
    )
