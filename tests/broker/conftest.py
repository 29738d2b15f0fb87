"""A running broker on a free port, without a name server, and a client that speaks in frames."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker import server
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol import codes
from aerobee.protocol.aio import chunks, connection
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import SUBSCRIPTION, SUSPEND, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message import properties
from aerobee.protocol.message.record import Record, decode_all
from aerobee.protocol.wire import Header

from ..clocks import Clock
from ..waiting import until
from .parts import Parts
from .virtual_time import threads, virtual_loop

Config = Callable[..., BrokerConfig]
Start = Callable[[BrokerConfig], Awaitable[Broker]]
Run = Callable[[BrokerConfig], Awaitable[tuple[Broker, "Caller"]]]
BORN_MS = 1_700_000_000_000  # the born time that Caller.send names


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops that each test runs on: of a module that says so on uvloop, too, where that is
    installed; or on one in virtual time."""
    module = item.getparent(pytest.Module)
    names = {} if module is None else vars(module.obj)
    assert isinstance(item, pytest.Function)
    if names.get("IN_VIRTUAL_TIME") or getattr(item.obj, "is_in_virtual_time", False):
        return {"virtual": virtual_loop}
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if names.get("ON_BOTH_LOOPS"):
        with suppress(ImportError):
            import uvloop

            loops["uvloop"] = uvloop.new_event_loop
    return loops


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of a module that says so runs with both engines."""
    if "engine" in metafunc.fixturenames and getattr(metafunc.module, "ON_BOTH_ENGINES", False):
        metafunc.parametrize("engine", ["interpreted", "compiled"], indirect=True)


class Caller:
    """One connection to the broker and the requests that tests need."""

    def __init__(self, broker: Broker) -> None:
        self.address = f"127.0.0.1:{broker.port}"
        self.peers = Peers()

    async def ask(
        self, code: int, header: Header | dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        return await self.peers.request(self.address, code, header, body, 20)

    async def send(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        code: int = codes.SEND_MESSAGE_V2,
        default_topic: str = "TBW102",
        batch: bool = False,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
        pairs: Mapping[str, str] | None = None,
        **named: str,
    ) -> Command:
        """Sends a message. `named` and `pairs` are its properties."""
        raw_properties = properties.encode({**named, **(pairs or {})})
        header = SendMessage(
            "pg",
            topic,
            default_topic,
            4,
            queue_id,
            0,
            BORN_MS,
            7,
            raw_properties.decode(),
            reconsume_times,
            max_reconsume_times=max_reconsume_times,
            batch=batch,
        )
        return await self.ask(code, header, body)

    async def pull(
        self,
        topic: str,
        offset: int = 0,
        *,
        queue_id: int = 0,
        expression: str | None = "*",
        suspend_ms: int = 0,
        max_messages: int = 32,
        group: str = "cg",
        sys_flag: int = 0,
        commit_offset: int = 0,
        code: int = codes.PULL_MESSAGE,
        sub_version: int = 0,
        kind: str | None = None,
    ) -> Command:
        flags = sys_flag | (SUBSCRIPTION if expression is not None else 0)
        flags |= SUSPEND if suspend_ms else 0
        header = PullMessage(
            group,
            topic,
            queue_id,
            offset,
            max_messages,
            flags,
            commit_offset,
            suspend_ms,
            sub_version,
            expression,
            kind,
        )
        return await self.ask(code, header)

    async def heartbeat(
        self,
        client_id: str = "c1",
        group: str | None = "cg",
        topics: dict[str, str] | None = None,
        *,
        producer: str | None = None,
        version: int = 1,
        model: str = "CLUSTERING",
        kind: str = "TAG",
        consume_type: str = "CONSUME_PASSIVELY",
    ) -> Command:
        consumers = []
        if group is not None:
            wanted = [subscription(t, e, kind, version) for t, e in (topics or {}).items()]
            consumers = [
                ConsumerData(group, consume_type, model, "CONSUME_FROM_FIRST_OFFSET", wanted)
            ]
        producers = [ProducerData(producer)] if producer else []
        return await self.ask(
            codes.HEART_BEAT, None, HeartbeatData(client_id, producers, consumers).encode()
        )


def counted(broker: Broker) -> dict[str, int]:
    """Messages that came in since the start, by topic."""
    puts = broker.stats.all_puts()
    return {topic: counter.messages for topic, counter in puts if counter.messages}


def records(answer: Command) -> list[Record]:
    """The records in a pull's answer."""
    return decode_all(answer.body or b"")


async def parked(broker: Broker, count: int) -> None:
    """Returns once this many pulls wait in the broker."""
    await until(lambda: broker.long_polls.count >= count)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Makes a config for this test's own folder; keywords replace defaults."""

    def make(**wanted: Any) -> BrokerConfig:
        base: dict[str, Any] = {
            "broker_name": "broker-a",
            "broker_ip1": "127.0.0.1",
            "listen_port": 0,
            "store_path_root_dir": str(tmp_path / "store"),
            "mapped_file_size_commit_log": 16 << 20,
            "mapped_file_size_timer_log": 1 << 20,
            "max_hash_slot_num": 1_000,
            "max_index_num": 4_000,
            "compiled_sends": False,  # `engine` says which tests use compiled code
        }
        return BrokerConfig(**(base | wanted))

    return make


Ready = Callable[[Broker], Awaitable[None]]


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ready:
    """`await engine(broker)` gives a started broker the engine that the test is to use.

    It is the interpreted one, unless the module has `ON_BOTH_ENGINES`. The compiled one then serves
    single messages, too.
    """
    is_compiled = getattr(request, "param", "interpreted") == "compiled"
    if is_compiled:
        pytest.importorskip("numba", reason="numba is not installed (extra: fast)")
        monkeypatch.setattr(chunks, "CHUNKS_MIN", 0)
        monkeypatch.setattr(connection, "READER_CONNECTIONS_MIN", 0)

    async def ready(broker: Broker) -> None:
        if is_compiled and not broker.config.is_slave:
            await broker.engine.load()

    return ready


@pytest.fixture
async def start(tmp_path: Path, engine: Ready) -> AsyncIterator[Start]:
    """Starts brokers and stops them before their folder goes: `broker = await start(config())`."""
    running: list[Broker] = []

    async def make(config: BrokerConfig) -> Broker:
        broker = Broker(config, now_ms=server.wall_clock_ms, threads=threads())
        await broker.start()
        running.append(broker)
        await engine(broker)
        return broker

    yield make
    for broker in running:
        await broker.stop()


@pytest.fixture
async def broker(start: Start, config: Config) -> Broker:
    return await start(config())


@pytest.fixture
async def caller(broker: Broker) -> AsyncIterator[Caller]:
    caller = Caller(broker)
    yield caller
    await caller.peers.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def run(clock: Clock, tmp_path: Path, engine: Ready) -> AsyncIterator[Run]:
    """Starts brokers on the test's clock, and stops them before their folder goes."""
    running: list[tuple[Broker, Caller]] = []

    async def make(config: BrokerConfig) -> tuple[Broker, Caller]:
        broker = Broker(config, now_ms=clock, threads=threads())
        await broker.start()
        running.append((broker, Caller(broker)))
        await engine(broker)
        return running[-1]

    yield make
    for broker, caller in running:
        await caller.peers.close()
        await broker.stop()


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    """The parts of a broker without its sockets."""
    parts = Parts(tmp_path)
    yield parts
    parts.store.close()
