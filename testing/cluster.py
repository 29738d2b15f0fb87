"""A cluster in this process, on free ports of the loopback, ready at once.

    with LocalCluster(brokers=2) as cluster:
        ...                                  # any client, at cluster.name_server
        cluster.advance(hours=2)             # two hours in a few milliseconds

The cluster has its own event loop and thread, so it serves blocking tests, asyncio tests and
programs in other processes. It writes to a temporary folder, deleted at the end. The clock of its
brokers runs in real time and can be moved forward; name servers and connections keep real time, so
no client times out when the clock moves.
"""

import asyncio
import difflib
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..namesrv.config import NamesrvConfig
from ..namesrv.server import NameServer
from ..protocol.aio.clocks import monotonic_ms, wall_ms

START_SECONDS = 30.0  # for all servers to start, and to stop
BROKERS_MAX = 64  # of one cluster
HOST = "127.0.0.1"
# Small files, so that a broker starts at once and uses little disk space.
SMALL = {
    "mapped_file_size_commit_log": 16 << 20,
    "mapped_file_size_timer_log": 1 << 20,
    "mapped_file_size_consume_queue": 20 * 10_000,
    "max_hash_slot_num": 10_000,
    "max_index_num": 40_000,
}
# As in `aerobee up`: SQL conditions and `Producer.recall` work.
TURNED_ON = {"enable_property_filter": True, "recall_message_enable": True}

Result = TypeVar("Result")


class Clock:
    """The brokers' time in ms: real time plus `moved_ms`."""

    def __init__(self) -> None:
        self.moved_ms = 0

    def __call__(self) -> int:
        return wall_ms() + self.moved_ms

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move forward. ValueError for a negative time: a store's clock never goes back."""
        by_ms = round(((hours * 60 + minutes) * 60 + seconds) * 1000)
        if by_ms < 0:
            raise ValueError(f"the clock can't go back by {-by_ms} ms; give a time ahead")
        self.moved_ms += by_ms


class LocalCluster:
    """A name server and brokers in the process of a test.

    `brokers` is their number, 1 to 64; they are called broker-a, broker-b, … in the cluster
    DefaultCluster. `folder` is where the stores go, one folder a broker; without it they go to a
    temporary folder that is deleted at the end. Further arguments are settings of every broker,
    named as RocketMQ names them (`messageDelayLevel="1s 2h"`) or in snake_case
    (`message_delay_level`). SQL conditions and `Producer.recall` are turned on, as in `aerobee up`.
    """

    def __init__(
        self, *, brokers: int = 1, folder: str | Path | None = None, **settings: Any
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ValueError(f"brokers is {brokers}; give a number from 1 to {BROKERS_MAX}")
        self.clock = Clock()
        self.brokers: list[Broker] = []
        self._count = brokers
        self._settings = _by_attribute(settings)
        self._given = None if folder is None else Path(folder)
        self._folder: Path | None = None
        self._names: NameServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def name_server(self) -> str:
        """The name server as "host:port": what a client is given."""
        assert self._names is not None, "the cluster is not started; use `with` or start()"
        return self._names.address

    def start(self) -> None:
        """Start all; returns when clients can send. Raises the error of a failed start."""
        self._folder = self._given or Path(tempfile.mkdtemp(prefix="aerobee-"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="aerobee-cluster", daemon=True
        )
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all and delete the temporary folder. May be called twice."""
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._stop(), loop).result(START_SECONDS)
            finally:
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join(START_SECONDS)
                loop.close()
        if self._folder is not None and self._given is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the brokers' clock forward, and return when they have done all that became due.

        Delayed messages and retries are delivered, open transactions are checked.
        """
        self.clock.advance(hours=hours, minutes=minutes, seconds=seconds)
        self._run(self._catch_up())

    def restart(self, number: int = 0) -> None:
        """Stop a broker and start it again on its store, at its old port."""
        self._run(self._restart(number))

    def call(self, work: Callable[[], Result]) -> Result:
        """The result of `work()`, called in the cluster's thread, to inspect a broker."""

        async def in_loop() -> Result:
            return work()

        return self._run(in_loop())

    # --- inside, in the thread of the cluster ---------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None, "the cluster is not started; use `with` or start()"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    async def _start(self) -> None:
        self._names = NameServer(NamesrvConfig(listen_port=0, bind_address=HOST))
        await self._names.start()
        for number in range(self._count):
            broker = self._broker(number)
            await broker.start()
            self.brokers.append(broker)

    async def _stop(self) -> None:
        for broker in self.brokers:
            await broker.stop()
        if self._names is not None:
            await self._names.stop()

    async def _catch_up(self) -> None:
        for broker in self.brokers:
            await broker.catch_up()

    async def _restart(self, number: int) -> None:
        old = self.brokers[number]
        await old.stop()
        self.brokers[number] = self._broker(number, old.port, old.ha_port)
        await self.brokers[number].start()

    def _broker(self, number: int, port: int = 0, ha_port: int = 0) -> Broker:
        assert self._folder is not None
        name = f"broker-{chr(ord('a') + number)}" if number < 26 else f"broker-{number}"
        settings: dict[str, Any] = {
            "broker_name": name,
            "broker_ip1": HOST,
            "bind_address": HOST,
            "listen_port": port,
            "ha_listen_port": ha_port,
            "namesrv_addr": self.name_server,
            "store_path_root_dir": str(self._folder / name),
            **SMALL,
            **TURNED_ON,
            **self._settings,
        }
        return Broker(
            BrokerConfig(**settings), now_ms=self.clock, alive_ms=monotonic_ms, client_ms=wall_ms
        )


def _by_attribute(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by attribute of `BrokerConfig`; ValueError for an unknown one."""
    names, keys = BrokerConfig.__struct_fields__, BrokerConfig.__struct_encode_fields__
    attributes = dict(zip(keys, names, strict=True))
    found: dict[str, Any] = {}
    for name, value in settings.items():
        attribute = attributes.get(name, name)
        if attribute not in attributes.values():
            near = difflib.get_close_matches(name, [*attributes, *attributes.values()], 1)
            hint = f"did you mean {near[0]}?" if near else "conf/broker.yaml has all of them"
            raise ValueError(f"{name} is no setting of a broker; {hint}")
        if attribute in found:
            raise ValueError(f"the setting {attribute} is given twice, as {name} too; give one")
        found[attribute] = value
    return found
