"""Two lakes that write one table, a broker, a name server and producers; one after the other is
killed. At the end the table is compared with the broker's queues and the producers' ledger."""

import asyncio
import json
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from aerobee.client.errors import AerobeeError
from aerobee.harness.child import Reporter
from aerobee.harness.java_side import free_broker_port, free_ports
from aerobee.lake import settings as lake_settings
from aerobee.lake.bodies.fields import Field
from aerobee.lake.dead_letters import DeadLetters
from aerobee.lake.opening import open_catalog
from aerobee.lake.progress import progress_of
from aerobee.lake.settings import LakeSettings, TableSettings
from aerobee.lake.topic_log import TopicLog
from aerobee.lake.verify import verify
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.record import decode_all
from pyiceberg.table import Table

from ..waiting import PROCESS, until

ROOT = Path(__file__).parents[2]
TOPIC, BROKER = "orders", "broker-a"
QUEUES = 4
COMMIT_SECONDS = 0.2
PAUSE_SECONDS = 0.004  # of a producer between two messages, so that the others get a processor
ACKNOWLEDGED_MAX = 100  # before a kill
CALL_MAX = 120  # the last call at which a writer kills itself: those of some passes
WRITERS = ("lake-a", "lake-b")
COMPACTIONS = ("compact-a", "compact-b")
KINDS = {  # how often of 20; a broker finds a new name server after 10 s
    "writer": 4,
    "writer at a call": 6,
    "both writers": 3,
    "broker": 3,
    "name server": 1,
    "compaction at a call": 3,
}
# So small that files roll over between two kills.
SETTINGS = {
    "brokerName": BROKER,
    "httpPort": "-1",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "mappedFileSizeTimerLog": str(1 << 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "flushIntervalCommitLog": "50",
    "fileReservedTime": "72",
}

Key = tuple[str, int, int]  # broker, queue, offset
Result = TypeVar("Result")


@dataclass
class Outcome:
    """What was done, and what the table lacks or has too much: numbers of rows.

    `lost` are acknowledged messages that the broker does not have where it said. `orphans` are
    Parquet files that no snapshot has. `tracebacks` are those in the logs.
    """

    kills: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    acknowledged: int = 0
    commits: int = 0
    conflicts: int = 0
    compacted: int = 0
    orphans: int = 0
    lost: int = 0
    missing: int = 0
    twice: int = 0
    different: int = 0
    misplaced: int = 0  # in the table though they don't fit, or dead letters though they do
    dead: int = 0
    unclean: list[str] = field(default_factory=list)  # queues, by aerobee lake verify
    tracebacks: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True if every message is in the table once, and nothing else."""
        wrong = (self.lost, self.missing, self.twice, self.different, self.misplaced)
        return not (any(wrong) or self.unclean or self.tracebacks)


class Kills:
    """The cluster with its lakes in `folder`; `running` makes one."""

    def __init__(self, folder: Path, draw: Random, programs: Reporter, json: str) -> None:
        self.outcome = Outcome()
        self.acknowledged: dict[Key, bytes] = {}
        self._folder, self._draw, self._programs = folder, draw, programs
        self._peers = Peers()
        self._sent = 0
        self._is_ending = False
        self._producers: list[asyncio.Task[None]] = []
        (port,) = free_ports(1)
        self._namesrv, self._port = f"127.0.0.1:{port}", free_broker_port()
        store = folder / "store"
        self._words = {
            "namesrv": ["namesrv", "--listen-port", str(port), "--set", "httpPort=-1"],
            "broker": ["broker", "-n", self._namesrv],
        }
        self._words["namesrv"] += ["--set", "kvConfigPath="]
        given = SETTINGS | {"listenPort": str(self._port), "storePathRootDir": str(store)}
        for key, value in given.items():
            self._words["broker"] += ["--set", f"{key}={value}"]
        self.settings = LakeSettings(
            place=str(folder / "tables"),
            namesrv_addr=self._namesrv,
            catalog={"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}"},
            tables=(TableSettings(topic=TOPIC, commit_seconds=COMMIT_SECONDS, json=json),),
        )
        # One reads the broker's files, the other asks the broker.
        for name, stores in zip(WRITERS, ({BROKER: str(store)}, {}), strict=True):
            path = folder / f"{name}.yaml"
            said = LakeSettings(
                **{each: getattr(self.settings, each) for each in self.settings.__struct_fields__}
                | {"stores": stores}
            )
            lake_settings.write(path, said)
            self._words[name] = ["lake", "run", "--config", str(path)]
        for name in COMPACTIONS:
            self._words[name] = ["lake", "compact", TOPIC, "--config", str(path)]

    async def begin(self) -> None:
        """Start all; returns when the table has its first rows. The writer of the
        first ones kills itself."""
        for name in ("namesrv", "broker"):
            await self._start(name)
        self._producers = [asyncio.create_task(self._produce(each)) for each in range(QUEUES)]
        await self._until_acknowledged(1)
        await asyncio.to_thread(open_catalog(self.settings).create, TOPIC, TOPIC)
        before = self._head()
        await self._start_doomed(WRITERS[0])
        for name in WRITERS:
            await self._start(name)
        await self._until_other(before)

    async def kill(self, kind: str) -> None:
        """Kill those of this kind and start them again; returns when a commit came after it."""
        await self._until_acknowledged(self._draw.randrange(1, ACKNOWLEDGED_MAX))
        if kind == "compaction at a call":
            await self._compact()
            return
        names = {
            "writer": [self._draw.choice(WRITERS)],
            "writer at a call": [self._draw.choice(WRITERS)],
            "both writers": list(WRITERS),
            "broker": ["broker"],
            "name server": ["namesrv"],
        }[kind]
        for name in names:
            await self._ask("ended", kill=name)
            self.outcome.kills[name] += 1
        if kind == "writer at a call":
            await self._start_doomed(names[0])
        for name in names:
            await self._start(name)
        await self._until_other(self._head())

    async def finish(self) -> Outcome:
        """Send no more, let the writers copy the rest, and compare."""
        # A send that is cancelled may still be stored, behind the end that the broker tells then.
        self._is_ending = True
        await asyncio.gather(*self._producers)
        stored = await self._patiently(self._stored)
        ends = {f"{BROKER}:{queue}": 0 for queue in range(QUEUES)}
        for broker, queue, at in stored:
            ends[f"{broker}:{queue}"] = max(at + 1, ends[f"{broker}:{queue}"])
        catalog = open_catalog(self.settings)
        await until(
            lambda: progress_of(catalog.load(TOPIC, TOPIC).metadata, TOPIC).offsets == ends,
            lambda: f"the table is not at the ends of the queues, {ends}",
            seconds=PROCESS,
            pause=0.2,
        )
        for name in WRITERS:
            await self._ask("ended", kill=name)
        table = catalog.load(TOPIC, TOPIC)
        letters = DeadLetters(catalog, TOPIC, TOPIC)
        both = [table]
        if progress_of(table.metadata, TOPIC).letters:
            both.append(letters.opened(table))
        self._compare(both, stored)
        fields = self.settings.tables[0].fields
        self.outcome.unclean = await self._patiently(
            lambda: asyncio.to_thread(_verified, table, self._namesrv, fields, letters)
        )
        self._read_logs()
        return self.outcome

    async def stop(self) -> None:
        """End the producers."""
        await self._end_producers()
        await self._peers.close()

    # --- inside ---------------------------------------------------------------------------------

    async def _start(self, name: str, **fault: Any) -> None:
        await self._ask("started", start=name, words=self._words[name], **fault)

    async def _ask(self, event: str, **order: Any) -> dict[str, Any]:
        return await asyncio.to_thread(self._programs.ask, json.dumps(order), event, PROCESS)

    async def _start_doomed(self, name: str) -> None:
        """Start a writer that kills itself at a call; returns when it is dead."""
        at, after = self._draw.randrange(CALL_MAX), self._draw.random() < 0.5
        await self._start(name, at=at, after=after)
        await self._until_dead(name, f"call {at}")
        self.outcome.kills[f"{name} at a call"] += 1

    async def _compact(self) -> None:
        """Two compactions of the same files, of which the first kills itself at a call."""
        at, after = self._draw.randrange(CALL_MAX), self._draw.random() < 0.5
        before = self._head()
        await self._start(COMPACTIONS[0], at=at, after=after)
        await self._start(COMPACTIONS[1])
        for name in COMPACTIONS:
            await self._until_dead(name, "end")
        self.outcome.kills["compaction at a call"] += 1
        await self._until_other(before)

    async def _until_dead(self, name: str, what: str) -> None:
        async def is_dead() -> bool:
            return (await self._ask("polled", poll=name))["code"] is not None

        await until(is_dead, f"{name} still lives, it makes no {what}", seconds=PROCESS, pause=0.02)

    def _head(self) -> str:
        """Where the table's metadata is now."""
        with closing(sqlite3.connect(self._folder / "catalog.db", timeout=PROCESS)) as database:
            (found,) = database.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        return str(found)

    async def _until_other(self, head: str) -> None:
        await until(
            lambda: self._head() != head,
            lambda: f"no commit comes after {dict(self.outcome.kills)}",
            seconds=PROCESS,
            pause=0.02,
        )

    async def _until_acknowledged(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        await until(
            lambda: (
                len(self.acknowledged) >= wanted or any(each.done() for each in self._producers)
            ),
            f"{wanted} messages are not acknowledged",
            seconds=PROCESS,
        )
        for each in self._producers:
            if each.done():
                each.result()

    async def _produce(self, queue: int) -> None:
        """Send until the end; a message without an answer is not sent again."""
        address = f"127.0.0.1:{self._port}"
        header = SendMessage("pg", TOPIC, "TBW102", QUEUES, queue, 0, 1, 0, "", 0)
        while not self._is_ending:
            self._sent += 1
            number = b"%d" if self._sent % 3 else b'"%d"'  # a text does not fit
            body = b'{"number": %s}' % (number % self._sent)
            body = body.ljust(20 + self._sent * 37 % 400)
            with suppress(OSError):
                answer = await self._peers.request(
                    address, codes.SEND_MESSAGE_V2, header, body, PROCESS
                )
                if answer.code == codes.SUCCESS:
                    at = int(answer.fields()["queueOffset"])
                    self.acknowledged[BROKER, queue, at] = body
            await asyncio.sleep(PAUSE_SECONDS)

    async def _end_producers(self) -> None:
        for each in self._producers:
            each.cancel()
        await asyncio.gather(*self._producers, return_exceptions=True)
        self._producers.clear()

    @staticmethod
    async def _patiently(work: Callable[[], Awaitable[Result]]) -> Result:
        """What `work` gives once the broker and the name server know each other again."""
        found: list[Result] = []

        async def is_done() -> bool:
            with suppress(OSError, AerobeeError):
                found.append(await work())
            return bool(found)

        await until(is_done, "the broker or the name server is away", seconds=PROCESS, pause=0.1)
        return found[0]

    def _compare(self, tables: list[Table], stored: dict[Key, bytes]) -> None:
        """Compare the rows of the table, and of its dead letters, with those of the broker."""
        keys: list[Key] = []
        have: dict[Key, bytes] = {}
        found = self.outcome
        for is_dead, table in enumerate(tables):
            names = ("brokerName", "queueId", "offset", "value")
            rows = table.scan(selected_fields=names).to_arrow()
            *places, bodies = (rows.column(name).to_pylist() for name in names)
            keys += zip(*places, strict=True)
            have.update(zip(keys[len(keys) - len(bodies) :], bodies, strict=True))
            if len(tables) > 1:
                found.misplaced += sum((b'"number": "' in each) != is_dead for each in bodies)
        found.messages, found.acknowledged = len(stored), len(self.acknowledged)
        found.lost = sum(stored.get(key) != body for key, body in self.acknowledged.items())
        found.missing = len(stored.keys() - have.keys())
        found.twice = len(keys) - len(have)
        found.different = sum(stored.get(key) != body for key, body in have.items())
        found.dead = tables[1].scan().count() if len(tables) > 1 else 0
        files = {task.file.file_path for table in tables for task in table.scan().plan_files()}
        there = {f"file://{each}" for each in (self._folder / "tables").rglob("*.parquet")}
        found.orphans = len(there - files)
        found.commits = len(tables[0].snapshots())

    async def _stored(self) -> dict[Key, bytes]:
        """The bodies of the broker's queues, which a pull of each gives."""
        found: dict[Key, bytes] = {}
        address = f"127.0.0.1:{self._port}"
        for queue in range(QUEUES):
            fields = {"topic": TOPIC, "queueId": str(queue)}
            ask = self._peers.request
            answer = await ask(address, codes.GET_MAX_OFFSET, fields, b"", PROCESS)
            end, at = int(answer.fields()["offset"]), 0
            while at < end:
                header = PullMessage("g", TOPIC, queue, at, 32, SUBSCRIPTION, 0, 0, 0, "*")
                answer = await ask(address, codes.PULL_MESSAGE, header, b"", PROCESS)
                assert answer.code == codes.SUCCESS, answer.remark
                for record in decode_all(answer.body or b""):
                    found[BROKER, queue, record.queue_offset] = record.body
                at = int(answer.fields()["nextBeginOffset"])
        return found

    def _read_logs(self) -> None:
        for path in self._folder.glob("*.log"):
            said = path.read_text()
            self.outcome.compacted += len(re.findall(r"files of 1 day are 1 now", said))
            self.outcome.conflicts += said.count("another writer was first")
            if "Traceback" in said:
                self.outcome.tracebacks.append(said[said.index("Traceback") :][:4_000])


def _verified(
    table: Table, namesrv: str, fields: tuple[Field, ...], letters: DeadLetters
) -> list[str]:
    """The queues that aerobee lake verify finds unlike the log."""
    source = TopicLog(namesrv)
    try:
        found = verify(table, source, TOPIC, fields=fields, letters=letters)
        return [each.queue for each in found if not each.is_clean]
    finally:
        source.close()


@asynccontextmanager
async def running(folder: Path, draw: Random, json: str = "") -> AsyncIterator[Kills]:
    """All of them at work, and their end; with the columns of JSON that `json` declares."""
    argv = [sys.executable, "-m", "tests.lake.kill_program", str(folder)]
    with Reporter(argv, folder / "kill_program.stderr", cwd=ROOT) as programs:
        found = Kills(folder, draw, programs, json)
        try:
            await found.begin()
            yield found
        finally:
            await found.stop()
            await asyncio.to_thread(programs.close_input)
