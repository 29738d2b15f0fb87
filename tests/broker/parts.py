"""The parts of a broker without its sockets: a real store in a folder, real tables, a still clock.

`Parts.ask` sends a request as it stands on the wire (header fields as texts) through a row of the
handlers under test and gives back the reply, or raises its Refusal.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aerobee.broker.admin.broker import AdminBrokerHandlers
from aerobee.broker.admin.clients import AdminClientHandlers
from aerobee.broker.admin.groups import AdminGroupHandlers
from aerobee.broker.admin.offsets import AdminOffsetHandlers
from aerobee.broker.admin.runtime_info import RuntimeInfo
from aerobee.broker.admin.stats import AdminStatsHandlers
from aerobee.broker.admin.topics import AdminTopicHandlers
from aerobee.broker.groups.clients import Clients
from aerobee.broker.groups.groups import Groups
from aerobee.broker.groups.offsets import Offsets
from aerobee.broker.groups.waiting_groups import WaitingGroups
from aerobee.broker.naming.other_masters import OtherMasters
from aerobee.broker.pull.query_handlers import QueryHandlers
from aerobee.broker.runtime.cleaner import Cleaner
from aerobee.broker.runtime.stats import Stats
from aerobee.broker.runtime.threads import Threads
from aerobee.broker.scheduled.delays import Delays
from aerobee.broker.settings.config import BrokerConfig
from aerobee.broker.settings.delay_levels import parse_levels
from aerobee.broker.settings.dynamic import DynamicSettings
from aerobee.broker.topics.topics import Topics
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.memory_budget import MemoryBudget
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.aio.slices import Slices
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command, Response, read_ext
from aerobee.protocol.errors import Refusal
from aerobee.protocol.message import properties
from aerobee.protocol.message.tags import tag_hash
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore

HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")
ADDRESS = "127.0.0.1:10911"
START_MS = 1_700_000_000_000


@dataclass(eq=False)
class Wire:
    """Stands in for a client's connection: remembers what it is told, answers what it is asked."""

    address: str = "127.0.0.1:50001"
    told: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[tuple[int, dict[str, str], bytes, float]] = field(default_factory=list)
    answer: Command | Exception = field(default_factory=Command)
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    is_full: bool = False

    def oneway(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        self.told.append((code, fields, body))

    async def request(
        self, code: int, fields: dict[str, str], body: bytes, timeout_s: float
    ) -> Command:
        self.asked.append((code, fields, body, timeout_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def connection_of(wire: Wire) -> Connection:
    """The wire as a part of the broker takes it."""
    return cast(Connection, wire)


class Parts:
    """Everything that administrative handlers work on. `now_ms` is the clock: set it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now_ms = START_MS
        base: dict[str, Any] = {
            "broker_name": "broker-a",
            "store_path_root_dir": str(folder / "store"),
            "mapped_file_size_commit_log": 1 << 20,
            "mapped_file_size_timer_log": 1 << 20,
            "max_hash_slot_num": 100,
            "max_index_num": 400,
        }
        self.config = config = BrokerConfig(**(base | settings))

        def clock() -> int:
            return self.now_ms

        root = config.store_dir
        self.store = MessageStore(root, config.store_settings(), HOST, clock)
        self.store.open()
        self.stats = Stats(config.broker_cluster_name, clock)
        self.topics = Topics(root / "config" / "topics.json", config, self.stats, clock)
        self.store.state.batch_topics = self.topics.with_batch_queues
        self.topics.load()
        self.changes: list[TopicConfig] = []
        self.topics.on_change = self.changes.append
        self.groups = Groups(root / "config" / "subscriptionGroup.json", config, clock)
        self.groups.load()
        self.offsets = Offsets(root / "config" / "consumerOffset.json", clock)
        self.clients = Clients(lambda _: None)
        self.dynamic_settings = DynamicSettings(config, root / "config" / "hotKeys.json", clock)
        self.marked: list[tuple[str, int]] = []
        self.delays = Delays(
            root / "config" / "delayOffset.json",
            self.store,
            parse_levels(config.message_delay_level),
            clock,
            lambda _: None,
            self.stats,
        )
        name = config.broker_name
        info = RuntimeInfo(
            config,
            self.store,
            self.stats,
            self.delays,
            clients=self.clients,
            other_masters=OtherMasters(config, ADDRESS),
            waiting_groups=WaitingGroups(config, self.store, self.offsets),
            not_stored=lambda: None,
            started_ms=START_MS,
            now_ms=clock,
        )
        # Its clock stands still, so that each answer is ready within the first slice.
        self.slices = slices = Slices(cast(Scheduler, SimpleNamespace(served=0)), clock=lambda: 0.0)
        families = (
            AdminTopicHandlers(
                config,
                self.store,
                self.topics,
                self.offsets,
                self.stats,
                slices,
                self._save_offsets,
                lambda topic: None,
            ),
            AdminGroupHandlers(
                self.groups,
                self.offsets,
                self.clients,
                self.stats,
                ADDRESS,
                slices,
                lambda group: None,
            ),
            AdminOffsetHandlers(
                config,
                self.store,
                self.topics,
                self.groups,
                self.offsets,
                self.clients,
                self.delays,
                self.marked.append,
                slices,
            ),
            AdminClientHandlers(
                self.store, self.topics, self.groups, self.clients, broker_name=name
            ),
            AdminStatsHandlers(
                self.store,
                self.topics,
                self.groups,
                self.offsets,
                self.clients,
                self.stats,
                broker_name=name,
                address=ADDRESS,
                now_ms=clock,
                slices=slices,
            ),
            AdminBrokerHandlers(
                config,
                self.store,
                self.topics,
                info,
                self.dynamic_settings,
                slices,
                Cleaner(self.store, Threads().executor("cleaner")),
            ),
            QueryHandlers(config, self.store, self.clients, slices),
        )
        self.rows: dict[int, Row] = {row.code: row for f in families for row in f.rows()}

    def ask(self, code: int, body: bytes | None = None, /, **fields: object) -> Response:
        """The reply to a request with these header fields, written as Java writes them."""
        reply = self._call(code, body, fields)
        if isinstance(reply, Coroutine):
            reply = asyncio.run(reply)
        assert isinstance(reply, Response)
        if isinstance(reply.body, list):  # as it goes into the frame
            reply.body = b"".join(reply.body)
        return reply

    async def ask_later(
        self, code: int, body: bytes | None = None, /, **fields: object
    ) -> Response:
        """The same of a request that asks another server first."""
        return await cast(Coroutine[Any, Any, Response], self._call(code, body, fields))

    async def _save_offsets(self) -> bool:
        self.offsets.save()
        return True

    def put(
        self, topic: str, queue_id: int = 0, body: bytes = b"body", at_ms: int = 0, **pairs: str
    ) -> int:
        """Store a message (at this time, or now); its log offset."""
        if at_ms:
            self.now_ms = at_ms
        tags = pairs.get("TAGS")
        log_offset, _, _ = self.store.put(
            Message(
                (topic, queue_id),
                0,
                0,
                self.now_ms,
                HOST,
                body,
                properties.encode(pairs),
                0 if tags is None else tag_hash(tags),
            )
        )
        counter = self.stats.puts(topic)
        for each in (counter, counter.total):
            each.messages += 1
            each.bytes += len(body)
        self.store.write_staged()
        return log_offset

    def topic(self, name: str, queues: int = 2, **more: Any) -> TopicConfig:
        """Make a topic."""
        config = TopicConfig(name, queues, queues, **more)
        self.topics.put(config)
        self.changes.clear()
        return config

    def join(
        self,
        group: str | None,
        topics: dict[str, str] | None = None,
        *,
        client_id: str = "c1",
        producer: str | None = None,
        version: int = 479,
        language: str = "JAVA",
        address: str = "127.0.0.1:50001",
    ) -> Wire:
        """A client of a group comes online."""
        wire = Wire(address)
        wanted = [subscription(topic, text, version=1) for topic, text in (topics or {}).items()]
        consumers = []
        if group is not None:
            consumers = [
                ConsumerData(
                    group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted
                )
            ]
        producers = [ProducerData(producer)] if producer else []
        heartbeat = HeartbeatData(client_id, producers, consumers)
        self.clients.register(heartbeat, connection_of(wire), language, version, self.now_ms, list)
        return wire

    def _call(self, code: int, body: bytes | None, fields: dict[str, object]) -> object:
        texts = {name: _text(value) for name, value in fields.items()}
        language = texts.pop("language", "JAVA")
        command = Command(code, read_ext(texts or None), body=body, language=language)
        row = self.rows[code]
        header = None if row.header is None else command.header(row.header)
        handler: Any = row.handler  # of a row without an inbox
        return handler(header, command, connection_of(Wire()))


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def refused(parts: Parts, code: int, body: bytes | None = None, /, **fields: object) -> Refusal:
    """The refusal of a request."""
    with pytest.raises(Refusal) as caught:
        parts.ask(code, body, **fields)
    return caught.value
