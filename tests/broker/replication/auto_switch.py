"""Stores that lead and follow in controller mode, without the rest of a broker, and a controller
that a test makes answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aerobee.broker.replication.auto_switch_slave import AutoSwitch
from aerobee.broker.replication.master import HaMaster
from aerobee.broker.replication.slave import HaSlave
from aerobee.broker.replication.sync_set_acks import Replicas, SyncSetAcks
from aerobee.broker.replication.sync_state import SyncState
from aerobee.protocol.aio.server import listen
from aerobee.protocol.ha_auto_switch import Chunk, MasterHello, MasterStream, SlaveHello, report
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore

from ...waiting import LONG, until
from ..conftest import Config

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SEGMENT = 64 << 10
SWEEP_SECONDS = 0.1


class Controller:
    """Says yes; while `is_silent`, a question waits. `asked` are the sets it was asked for."""

    def __init__(self) -> None:
        self.acks: SyncSetAcks | None = None
        self.asked: list[list[int]] = []
        self.members: frozenset[int] = frozenset()
        self.set_epoch = 1
        self.is_silent = False
        self.refuses = False
        self.wrong: Exception | None = None

    async def alter(self, wanted: frozenset[int]) -> None:
        self.asked.append(sorted(wanted))
        if self.wrong is not None:
            raise self.wrong
        await until(lambda: not self.is_silent)
        if not self.refuses:
            self.take(wanted)

    def take(self, members: Iterable[int]) -> None:
        self.members = frozenset(members)
        self.set_epoch += 1
        self.tell()

    def tell(self) -> None:
        assert self.acks is not None
        self.acks.apply(self.members, self.set_epoch)


class Node:
    """A store, and its role: `master` or `slave`."""

    def __init__(self, config: Config, folder: Path, clock: Callable[[], int], number: int) -> None:
        self.folder = folder
        self.clock = clock
        self.number = number
        self.config = config(store_path_root_dir=str(folder), mapped_file_size_commit_log=SEGMENT)
        self.controller = Controller()
        self.master: HaMaster | None = None
        self.slave: HaSlave | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.acked: list[int] = []
        self.cuts: list[int] = []
        self.confirmations = 0
        self.port = 0
        self.sync_flush = False
        self.store = self._opened()

    def _opened(self) -> MessageStore:
        settings = replace(
            self.config.store_settings(), controller_mode=True, sync_flush=self.sync_flush
        )
        store = MessageStore(self.folder, settings, HOST, self.clock)
        store.open()
        return store

    async def reopen(self, *, crash: bool = False, sync_flush: bool = False) -> None:
        await self.halt()
        self.store.abandon() if crash else self.store.close()
        self.sync_flush = sync_flush
        self.store = self._opened()

    def put(self, count: int = 1, body: bytes = b"body", topic: str = "T") -> int:
        """Messages more; where the log ends then."""
        for _ in range(count):
            self.store.put(Message((topic, 0), 0, 0, 0, HOST, body, b"TAGS\x01a\x02", 0))
        self.store.write_staged()
        if self.master is not None:
            self.master.send()
        return self.store.log_end

    async def lead(
        self,
        epoch: int,
        *members: int,
        all_ack: bool = True,
        replicas: Replicas = lambda: dict.fromkeys(range(1, 10), ""),
    ) -> SyncSetAcks:
        """Become the master; the members of the set are this one and `members`."""
        await self.halt()
        self.store.resume("slave")
        self.store.state.is_following = False
        self.store.begin_epoch(epoch)
        self.controller.members = frozenset({self.number, *members})
        state = SyncState(self.controller.members, self.controller.set_epoch)
        server, self.port = await listen(
            lambda: made.acks.connection(), "127.0.0.1", 0, accept=False
        )

        def acks(ha: HaMaster) -> SyncSetAcks:
            self.controller.acks = found = SyncSetAcks(
                ha,
                broker_id=self.number,
                state=state,
                alter=self.controller.alter,
                on_acked=self.acked.append,
                on_confirmed=self._on_confirmed,
                replicas=replicas,
                all_ack=all_ack,
            )
            return found

        self.master = made = HaMaster(self.config, self.store, server, self.clock, acks)
        await made.start()
        self._sweeping = asyncio.create_task(self._sweep(made.sweep))
        assert self.controller.acks is not None
        return self.controller.acks

    async def follow(
        self, other: "Node | None", sync_to: Callable[[int], Awaitable[bool]] | None = None
    ) -> HaSlave:
        """Become a slave of the other."""
        await self.halt()
        self.store.follower.follow("a slave")
        switch = AutoSwitch(self.number, self.cuts.append, self._on_confirmed, sync_to)
        self.slave = HaSlave(
            self.config,
            self.store,
            self.clock,
            lambda keys: None,
            switch.connection,
            retry_seconds=0.01,
        )
        if other is not None:
            self.slave.set_master(f"127.0.0.1:{other.port}")
        await self.slave.start()
        self._sweeping = asyncio.create_task(self._sweep(self.slave.sweep))
        return self.slave

    async def _sweep(self, sweep: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            sweep()

    async def halt(self) -> None:
        """Have no role any more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self.master is not None:
            await self.master.stop()
        if self.slave is not None:
            await self.slave.stop()
        self.master = self.slave = None

    async def has(self, end: int) -> None:
        await until(lambda: self.store.log_end == end, f"the log reaches {end}")

    def log(self) -> bytes:
        return b"".join(
            self.store.raw(each.base, each.size) for each in self.store.state.log.segments.items
        )

    @property
    def epochs(self) -> list[str]:
        return [str(entry) for entry in self.store.epochs.entries]

    def bodies(self, topic: str = "T") -> int:
        """The number of messages that can be read."""
        return self.store.max_offset(topic, 0)

    def _on_confirmed(self) -> None:
        self.confirmations += 1


class RawSlave:
    """A socket that acts as a slave of a master."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.stream = MasterStream()
        self.packets: list[MasterHello | Chunk] = []
        self.data = b""

    @classmethod
    async def connected(cls, node: Node) -> "RawSlave":
        return cls(*await asyncio.open_connection("127.0.0.1", node.port))

    def greet(self, number: int, *, last_file: bool = False, learner: bool = False) -> None:
        self.writer.write(SlaveHello(number, last_file, learner).encode())

    def report(self, *ends: int) -> None:
        self.writer.write(b"".join(map(report, ends)))

    async def packet(self) -> MasterHello | Chunk:
        async with asyncio.timeout(LONG):
            while not self.packets:
                data = await self.reader.read(1 << 16)
                assert data, "the master has closed the connection"
                self.packets += self.stream.feed(data)
        return self.packets.pop(0)

    async def hello(self) -> MasterHello:
        found = await self.packet()
        assert isinstance(found, MasterHello)
        return found

    async def chunk(self) -> Chunk:
        found = await self.packet()
        assert isinstance(found, Chunk)
        return found

    async def log(self, end: int) -> list[Chunk]:
        """The chunks up to a log offset, without heartbeats."""
        found: list[Chunk] = []
        while not found or found[-1].place + len(found[-1].data) < end:
            chunk = await self.chunk()
            if chunk.data:
                found.append(chunk)
        return found

    async def closed(self) -> None:
        async with asyncio.timeout(LONG):
            with suppress(ConnectionResetError):
                while await self.reader.read(1 << 16):
                    pass
        self.writer.close()
