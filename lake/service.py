"""A running lake: all tables of the settings, each copied at its own pace.

Passes run in threads: pyiceberg waits for catalogs and files. A table that fails is tried again,
and the others go on. Entries that come, go or change in the file of the settings count at once.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from ..client.base.security import OPEN, Security
from ..client.errors import AerobeeError
from ..store.base.errors import NO_ROOM
from .catalog import LakeCatalog, table_name
from .commits import Conflict
from .compaction import DAY_MS, Stopped
from .errors import LakeError
from .materializer import Materializer, Pass
from .opening import name_of, open_catalog, open_log
from .progress import NO_TOTALS, Totals
from .replacement import FilesGone
from .settings import LakeSettings, SettingsFile, TableSettings
from .topic_log import TopicLog
from .upkeep import Upkeep

log = logging.getLogger(__name__)

Result = TypeVar("Result")

DISK_ERRORS = {*NO_ROOM, errno.EROFS}  # of writes alone
FILE_SECONDS = 2.0  # between two looks at the file of the settings
DISCOVERY_SECONDS = 30.0
PAUSE_SECONDS_MAX = 60.0  # after errors
CONFLICT_SECONDS = 0.1  # for each conflict in a row
UPKEEP_AFTER_SECONDS = 600.0  # from the start; a process that ends each day does it, too


@dataclass(slots=True)
class TableReport:
    """How one table does. Counts are since the start.

    `totals` are those of the table, as the last pass saw it. `complete_at` is a time.monotonic():
    all messages stored before it are in the table. `failure` is why the last pass did not succeed,
    `last_failure` the last one that there was, `upkeep_failure` why the last upkeep did not.
    """

    topic: str
    table: str
    rows: int = 0
    bytes: int = 0
    commits: int = 0
    conflicts: int = 0
    failures: int = 0
    dead: int = 0
    lag_messages: int = 0
    totals: Totals = NO_TOTALS
    committed_ms: int = 0
    complete_at: float = field(default_factory=time.monotonic)
    failure: str = ""
    last_failure: str = ""
    last_failure_ms: int = 0
    upkeeps: int = 0
    compacted: int = 0  # files that became fewer
    expired: int = 0  # snapshots
    swept: int = 0  # files
    kept_ms: int = 0  # when the last upkeep succeeded
    upkeep_failure: str = ""

    @property
    def lag_s(self) -> float:
        """The age in seconds that the oldest message which is not in the table may have."""
        return max(0.0, time.monotonic() - self.complete_at)

    def fail(self, why: str) -> None:
        """Note how the last pass failed, the empty text for one that did not."""
        self.failure = why
        if why:
            self.last_failure, self.last_failure_ms = why, int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class _Copying:
    """A table that is copied: the entry that it follows, its task, and what ends that."""

    entry: TableSettings
    stopping: asyncio.Event
    task: asyncio.Task[None]


class Lake:
    """Runs the tables of `settings` from `start` to `stop`, and follows their `file`."""

    def __init__(
        self,
        settings: LakeSettings,
        *,
        security: Security = OPEN,
        file: SettingsFile | None = None,
    ) -> None:
        self._settings = settings
        self._file = file
        self._security = security
        self.reports: dict[str, TableReport] = {}  # by topic
        self._copies: dict[str, _Copying] = {}  # by topic
        self.failure = ""  # of the file, and of looking for topics
        self._log: TopicLog | None = None
        self._catalog: LakeCatalog | None = None
        self._pool = ThreadPoolExecutor(settings.workers, "aerobee-lake")
        self._upkeep_pool = ThreadPoolExecutor(1, "aerobee-lake-upkeep")  # one table at a time
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Open the catalog and begin. LakeError when it can't be opened, or no table is asked
        for."""
        if not self._settings.tables:
            raise LakeError("the settings have no tables; aerobee lake add TOPIC adds one")
        try:
            self._catalog = await self._run(lambda: open_catalog(self._settings, must_exist=True))
            self._log = await self._run(lambda: open_log(self._settings, self._security))
        except BaseException:
            await self.stop()
            raise
        await self._use_entries()
        self._add(self._follow())
        if self._settings.upkeep_hours:
            self._add(self._keep_up())

    async def stop(self) -> None:
        """Finish the passes under way, and close."""
        self._stopping.set()
        for each in self._copies.values():
            each.stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._log is not None:
            await self._run(self._log.close)
        for pool in (self._pool, self._upkeep_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    # --- inside ---------------------------------------------------------------------------------

    def _add(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(
        self, work: Callable[[], Result], pool: ThreadPoolExecutor | None = None
    ) -> Result:
        return await asyncio.get_running_loop().run_in_executor(pool or self._pool, work)

    def _begin(self, topic: str, settings: TableSettings) -> None:
        assert self._catalog is not None
        assert self._log is not None
        name = name_of(topic, settings)
        self.reports[topic] = TableReport(topic, self._catalog.full_name(name))
        copier = materializer(self._catalog, self._log, topic, settings, self._settings.group)
        stopping = asyncio.Event()
        task = self._add(self._copy(copier, settings, self.reports[topic], stopping))
        self._copies[topic] = _Copying(settings, stopping, task)

    async def _end(self, topic: str) -> None:
        """Finish the pass under way, and forget the table."""
        ending = self._copies[topic]
        ending.stopping.set()
        await ending.task
        del self._copies[topic], self.reports[topic]

    async def _follow(self) -> None:
        """Follow the file of the settings, and look for topics that fit a pattern."""
        look_at, of_file = 0.0, ""
        of_topics: list[str] = []
        while True:
            try:
                if self._file is not None and (found := await self._run(self._file.changed)):
                    if of_file:
                        log.info("%s is good again, and counts from now on", self._file.path)
                    of_file = ""
                    self._use(found)
                    await self._use_entries()
                    look_at = 0.0
            except LakeError as wrong:
                of_file = f"{wrong}; the lake goes on with the entries of before"
            if time.monotonic() >= look_at:
                of_topics = await self._discover()
                look_at = time.monotonic() + DISCOVERY_SECONDS
            failure = "; ".join([*filter(None, [of_file]), *of_topics])
            if failure not in ("", self.failure):
                log.warning("%s", failure)
            self.failure = failure
            seconds = DISCOVERY_SECONDS if self._file is None else FILE_SECONDS
            if await self._paused(min(seconds, DISCOVERY_SECONDS), self._stopping):
                return

    def _use(self, found: LakeSettings) -> None:
        """Take over the entries of changed settings."""
        before, now = (msgspec.to_builtins(each) for each in (self._settings, found))
        others = [
            name
            for name in dict.fromkeys([*before, *now])
            if name != "tables" and before.get(name) != now.get(name)
        ]
        if others:
            log.warning(
                "%s of %s changed, which counts from the next start on",
                *(", ".join(others), "the settings" if self._file is None else self._file.path),
            )
        self._settings = msgspec.structs.replace(self._settings, tables=found.tables)

    async def _use_entries(self) -> None:
        """Begin the topics that have entries of their own, and end those without an entry, or with
        another one than they follow. Those that fail begin anew."""
        topics = [each.topic for each in self._settings.tables if each.topic]
        wanted = self._settings.entries(dict.fromkeys([*topics, *self._copies]))
        ends = [
            topic
            for topic, each in self._copies.items()
            if wanted.get(topic) != each.entry or self.reports[topic].failure
        ]
        await asyncio.gather(*map(self._end, ends))
        for topic, entry in wanted.items():
            if topic not in self._copies and not self._stopping.is_set():
                self._begin(topic, entry)

    async def _discover(self) -> list[str]:
        """Begin the tables of topics that fit a pattern, and are new; what fails."""
        assert self._catalog is not None
        assert self._log is not None
        if not any(each.pattern for each in self._settings.tables):
            return []
        try:
            topics = await self._run(self._log.topics)
        except (AerobeeError, OSError) as wrong:
            return [f"looking for topics: {wrong}"]
        failures = []
        fitting = self._settings.entries(topic for topic in topics if topic not in self._copies)
        for topic, entry in fitting.items():
            try:
                await self._run(partial(self._catalog.create, table_name(topic), topic))
            except LakeError as wrong:  # the others' tables can be made
                failures.append(f"looking for topics: {wrong}")
            else:
                self._begin(topic, entry)
        return failures

    async def _copy(
        self,
        copier: Materializer,
        settings: TableSettings,
        report: TableReport,
        stopping: asyncio.Event,
    ) -> None:
        pause, in_a_row = 0.0, 0
        while not await self._paused(pause, stopping):
            began = time.monotonic()
            try:
                done = await self._run(copier.copy)
            except Conflict as wrong:
                report.conflicts += 1
                log.info("%s", wrong)
                pause = min(settings.commit_seconds, CONFLICT_SECONDS * in_a_row)
                in_a_row += 1
                continue
            except Exception as wrong:
                pause = min(PAUSE_SECONDS_MAX, max(settings.commit_seconds, 2 * pause))
                self._note_failure(report, wrong)
                continue
            in_a_row = 0
            self._note(report, done, began)
            passed = time.monotonic() - began
            pause = 0.0 if done.is_behind else max(0.0, settings.commit_seconds - passed)

    async def _keep_up(self) -> None:
        """Compact, expire and sweep the tables, one after the other, each `upkeep_hours`."""
        assert self._catalog is not None
        pause = min(UPKEEP_AFTER_SECONDS, self._settings.upkeep_hours * 3_600)
        while not await self._paused(pause, self._stopping):
            began = time.monotonic()
            for report in list(self.reports.values()):
                name = report.table.removeprefix(f"{self._settings.namespace}.")
                upkeep = Upkeep(self._catalog, report.topic, name)
                try:
                    await self._run(partial(self._keep, upkeep, report), self._upkeep_pool)
                except Stopped:
                    return
                except Exception as wrong:
                    self._note_upkeep_failure(report, wrong)
            passed = time.monotonic() - began
            pause = max(1.0, self._settings.upkeep_hours * 3_600 - passed)

    def _keep(self, upkeep: Upkeep, report: TableReport) -> None:
        if self._stopping.is_set():
            raise Stopped("the lake ends")
        settings = self._settings
        try:
            done = upkeep.compact(settings.compact_mib << 20, is_stopping=self._stopping.is_set)
            report.compacted += done.before
        except FilesGone as wrong:
            log.info("%s", wrong)
        report.expired += upkeep.expire(older_ms=int(settings.snapshot_days * DAY_MS))
        report.swept += len(upkeep.sweep().deleted)
        report.upkeeps += 1
        report.kept_ms = int(time.time() * 1000)
        report.upkeep_failure = ""

    @staticmethod
    def _note_upkeep_failure(report: TableReport, wrong: Exception) -> None:
        text = str(wrong) or type(wrong).__name__
        is_ours = not isinstance(wrong, LakeError | AerobeeError | OSError)
        log.warning(
            "upkeep of table %s: %s", report.table, text, exc_info=wrong if is_ours else None
        )
        report.upkeep_failure = text

    @staticmethod
    async def _paused(seconds: float, stopping: asyncio.Event) -> bool:
        """Wait; whether it is the end."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return stopping.is_set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stopping.wait()
        return stopping.is_set()

    @staticmethod
    def _note(report: TableReport, done: Pass, began: float) -> None:
        report.rows += done.rows
        report.bytes += done.bytes
        report.dead += done.dead
        report.lag_messages = done.lag
        report.totals = done.totals
        if done.snapshot_id is not None:
            report.commits += 1
            report.committed_ms = int(time.time() * 1000)
            dead = f", {done.dead} dead letters" if done.dead else ""
            log.info(
                "table %s: %d rows%s, snapshot %d, %d messages behind",
                *(report.table, done.rows - done.dead, dead, done.snapshot_id, done.lag),
            )
        if not done.is_behind and not done.failures:
            report.complete_at = began
        failure = "; ".join((*done.failures, *done.group_failures))
        if done.group_failures and failure != report.failure:
            log.warning("table %s: %s", report.table, failure)
        report.fail(failure)

    def _note_failure(self, report: TableReport, wrong: Exception) -> None:
        text = reason(wrong, self._settings.place)
        report.failures += 1
        if report.failure != text:
            is_ours = not isinstance(wrong, LakeError | AerobeeError | OSError)
            log.warning("table %s: %s", report.table, text, exc_info=wrong if is_ours else None)
        report.fail(text or type(wrong).__name__)


def reason(wrong: Exception, place: str) -> str:
    """Why a table is not written; of a disk that takes no file also where, and the remedy."""
    if isinstance(wrong, OSError) and wrong.errno in DISK_ERRORS:
        return f"{wrong}, below {place}: free space there, or look after its limits"
    return str(wrong)


def materializer(
    catalog: LakeCatalog, source: TopicLog, topic: str, settings: TableSettings, group: str = ""
) -> Materializer:
    """The materializer of a topic with its settings, and the group of its lake."""
    return Materializer(
        catalog,
        source,
        topic,
        name_of(topic, settings),
        commit_bytes=settings.commit_mib << 20,
        start=settings.start,
        on_gone=settings.on_gone,
        fields=settings.fields,
        group=group,
    )
