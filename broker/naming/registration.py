"""Registers this broker and its topics with the name servers.

Every name server gets the full registration once per period. A changed topic is sent at once: all
changes of a loop iteration together, or each by itself with enableSingleTopicRegister. The
connection stays open: when it closes, the name server takes the broker out. A name server that
can't be reached is tried again in the next period; the others don't wait for it.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ...protocol import codes
from ...protocol.aio.slices import Slices, collected
from ...protocol.bodies.body import filled
from ...protocol.bodies.cluster import KVTable
from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.register import RegisterBrokerBody
from ...protocol.bodies.route import QueueData, TopicRouteData
from ...protocol.bodies.topic import TopicConfig, TopicConfigAndMappingSerializeWrapper
from ...protocol.codec import fastjson
from ...protocol.command import Command
from ...protocol.headers.namesrv import (
    BrokerIdentity,
    RegisterBroker,
    RegisterBrokerResponse,
    RegisterTopic,
)
from ...store.base.errors import StoreError
from ..runtime.peers import open_peers
from ..settings.config import BrokerConfig
from ..topics.topics import READ_WRITE, Topics
from .other_masters import OtherMasters

log = logging.getLogger(__name__)

TIMEOUT_S = 24.0  # RocketMQ's registerBrokerTimeoutMills
PERIOD_S_MIN, PERIOD_S_MAX = 10.0, 60.0
UNREGISTER_TIMEOUT_S = 3.0
TOPIC_TIMEOUT_S = 3.0  # for a topic that is registered by itself


class MasterAddresses(NamedTuple):
    """The addresses of a slave's master, for clients and for replication; both "" without a
    master."""

    address: str
    ha_address: str


NO_MASTER = MasterAddresses("", "")


class Registration:
    """Registers one broker with all its name servers. OSError for an unusable certificate file."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        address: str,
        ha_address: str,
        other_masters: OtherMasters,
        slices: Slices,
        on_master: Callable[[MasterAddresses], None] | None = None,
    ) -> None:
        """A slave gives `on_master`, which is called with its master's address at every change."""
        self._config = config
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        self._servers = config.name_servers
        self._slices = slices
        self._peers = open_peers(config)
        self._other_masters = other_masters
        self._on_master = on_master
        self._masters: dict[str, MasterAddresses] = {}  # as each name server says
        self._master = NO_MASTER
        self._changed: dict[str, TopicConfig] = {}
        self._whole: tuple[object, list[bytes]] = (
            None,
            [],
        )  # the values that those texts were made of
        self._in_order = asyncio.Lock()  # a topic's older state must not arrive after its newer one
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.Task[None] | None = None
        self._away: set[str] = set()  # name servers that don't answer, logged once each time
        self.registered: dict[str, bool] = dict.fromkeys(self._servers, False)

    async def start(self) -> None:
        """Register everywhere now, then again and again."""
        self._topics.on_change = self._on_change
        if self._servers:
            self._topics.wait_registered = self.wait_registered
        await self.register_all()
        self._timer = asyncio.create_task(self._run(), name="registration")

    async def stop(self) -> None:
        """Take this broker out of every name server that can still be reached."""
        self._topics.on_change = lambda _: None
        self._topics.wait_registered = None
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

    async def wait_registered(self, seconds: float) -> None:
        """Wait until the name servers know all changes so far, or for the timeout."""
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
        # A topic by itself has no room for the mapping of a static one.
        if single and not changed.keys() & self._topics.static.table.keys():
            for server in self._servers:
                self._start(self._tell_each(server, changed))
        else:
            self._start(self._register_topics(changed))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="register")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _tell_each(self, server: str, topics: dict[str, TopicConfig]) -> None:
        """Register each topic by a request of its own, which leaves a broker's other topics
        alone."""
        for name, known in topics.items():
            config = self._usable(known)
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
                    "name server %s: %s; topic %s is registered with the others",
                    server,
                    wrong,
                    name,
                )
                return

    async def _run(self) -> None:
        period = self._config.register_name_server_period / 1000
        period = max(PERIOD_S_MIN, min(period, PERIOD_S_MAX))
        await asyncio.sleep(PERIOD_S_MIN)
        while True:
            await self.register_all()
            await asyncio.sleep(period)

    async def register_all(self) -> None:
        """Register all topics everywhere, and see whether there are other masters of this name."""
        # Before it registers: a name server shows the master that registered last.
        await asyncio.gather(*map(self._ask_for_masters, self._servers))
        await self._register_topics(None)
        await self._other_masters.check()

    async def _ask_for_masters(self, server: str) -> None:
        config = self._config
        if config.is_slave or config.enable_controller_mode:
            return
        if self._peers.connected(server) is not None:
            await self._other_masters.ask(self._peers, server)

    async def _register_topics(self, topics: dict[str, TopicConfig] | None) -> None:
        """Tell each name server these topics, or all."""
        async with self._in_order:
            if topics is None:
                bodies = await self._whole_bodies()
            else:
                bodies = [await self._body(topics, self._topics.version)]
            waiting = [
                asyncio.create_task(self._register_parts(each, bodies)) for each in self._servers
            ]
        await asyncio.gather(*waiting)

    async def _register_parts(self, server: str, bodies: list[bytes]) -> None:
        for body in bodies:
            await self._register(server, body)
            if not self.registered[server]:
                return

    async def _register(self, server: str, body: bytes) -> None:
        config = self._config
        header = RegisterBroker(
            config.broker_name,
            self._address,
            config.broker_cluster_name,
            config.broker_id,
            self._ha_address,
            timeout_ms=config.broker_not_active_timeout_millis
            if config.has_acting_master
            else None,
            acting_master=config.has_acting_master or None,
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
        if answer.code == codes.REQUEST_CODE_NOT_SUPPORTED:
            log.warning(
                "no registration: namesrvAddr %s is %s; give the address of the name server, "
                "which is usually on port 9876",
                server,
                "this broker itself" if server == self._address else "a broker",
            )
        elif answer.code != codes.SUCCESS:
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
        self, server: str, answer: Command, on_master: Callable[[MasterAddresses], None]
    ) -> None:
        """Note the master's addresses in the response to a slave's registration."""
        found = answer.header(RegisterBrokerResponse)
        self._masters[server] = MasterAddresses(found.master_addr or "", found.ha_addr or "")
        # One that was restarted a moment ago knows of no master yet: the others' word counts.
        known = (self._masters.get(each, NO_MASTER) for each in self._servers)
        master = next((each for each in known if each.address), NO_MASTER)
        if master != self._master:
            self._master = master
            on_master(master)

    def _put_in_order(self, server: str, body: bytes) -> None:
        """Take the order conf of all topics from the response to a registration."""
        try:
            names = KVTable.decode(body).table
            self._topics.put_in_order(names)
        except (ValueError, StoreError) as wrong:
            log.warning("the order conf of name server %s is not taken: %s", server, wrong)

    async def _whole_bodies(self) -> list[bytes]:
        """All topics: the texts of the last time when nothing has changed since.

        With enableSplitRegistration at most splitRegistrationSize topics a text. Name servers pass
        over a text whose version they know, so each has another; the last one has the table's.
        """
        config, topics = self._config, self._topics
        size = config.split_registration_size if config.enable_split_registration else 0
        state = (topics.version, topics.static.version, config.broker_permission, size)
        if state != self._whole[0]:
            found = list(topics.all().items())
            step = size or max(1, len(found))
            parts = [dict(found[at : at + step]) for at in range(0, len(found), step)] or [{}]
            versions = [topics.version]
            for _ in parts[1:]:
                versions.append(versions[-1].following(versions[-1].timestamp))
            bodies = [
                await self._body(part, version)
                for part, version in zip(parts, reversed(versions), strict=True)
            ]
            self._whole = (state, bodies)
        return self._whole[1]

    async def _body(self, topics: dict[str, TopicConfig], version: DataVersion) -> bytes:
        """The topics as they may be used here, under a version of the whole table."""
        static = self._topics.static
        infos = {name: static.info(name) for name in static.table if name in topics}
        wrapper = TopicConfigAndMappingSerializeWrapper({}, version, infos)
        entries = (
            fastjson.dump({name: self._usable(topics[name])})[1:-1] for name in sorted(topics)
        )
        pieces = filled(RegisterBrokerBody(wrapper), "topicConfigTable", entries)
        return b"".join(await self._slices.run(collected(pieces)))

    def _usable(self, config: TopicConfig) -> TopicConfig:
        """The topic as brokerPermission lets it be used."""
        mask = self._config.broker_permission
        return config if mask & READ_WRITE == READ_WRITE else _restricted(config, mask)


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
