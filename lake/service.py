"""A running lake: all tables of the settings, each copied at its own pace.

Passes run in threads: pyiceberg waits for catalogs and files. A table that fails is tried again,
and the others go on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ..client.base.security import OPEN, Security
from ..client.errors import AerobeeError
from .catalog import LakeCatalog, table_name
from .commits import Conflict
from .compaction import DAY_MS, Stopped
from .errors import LakeError
from .materializer import Materializer, Pass
from .opening import name_of, open_catalog, open_log
from .replacement import FilesGone
from .settings import LakeSettings, TableSettings
from .topic_log import TopicLog
from .upkeep import Upkeep

log = logging.getLogger(__name__)

Result = TypeVar("Result")

DISCOVERY_SECONDS = 30.0
PAUSE_SECONDS_MAX = 60.0  # after errors
CONFLICT_SECONDS = 0.1  # for each conflict in a row
UPKEEP_AFTER_SECONDS = 600.0  # from the start; a process that ends each day does it, too


@dataclass(slots=True)
class TableReport:
    """How one table does. Counts are since the start.

    `complete_at` is a time.monotonic(): all messages stored before it are in the table. `failure`
    is why the last pass did not succeed, `upkeep_failure` why the last upkeep did not.
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
    snapshot_id: int | None = None
    committed_ms: int = 0
    complete_at: float = field(default_factory=time.monotonic)
    failure: str = ""
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


class Lake:
    """Runs the tables of `settings` from `start` to `stop`."""

    def __init__(self, settings: LakeSettings, *, security: Security = OPEN) -> None:
        self._settings = settings
        self._security = security
        self.reports: dict[str, TableReport] = {}  # by topic
        self.failure = ""  # of looking for topics
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
            self._catalog = await self._run(lambda: open_catalog(self._settings))
            self._log = await self._run(lambda: open_log(self._settings, self._security))
        except BaseException:
            await self.stop()
            raise
        for each in self._settings.tables:
            if each.topic:
                self._begin(each.topic, each)
        self._add(self._discover())
        if self._settings.upkeep_hours:
            self._add(self._keep_up())

    async def stop(self) -> None:
        """Finish the passes under way, and close."""
        self._stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._log is not None:
            await self._run(self._log.close)
        for pool in (self._pool, self._upkeep_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    # --- inside ---------------------------------------------------------------------------------

    def _add(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
        self._add(self._copy(copier, settings, self.reports[topic]))

    async def _discover(self) -> None:
        """Begin the tables of topics that fit a pattern, as they come."""
        assert self._catalog is not None
        assert self._log is not None
        if not any(each.pattern for each in self._settings.tables):
            return
        while True:
            failures, topics = [], []
            try:
                topics = await self._run(self._log.topics)
            except (AerobeeError, OSError) as wrong:
                failures.append(str(wrong))
            for topic in topics:
                entry = self._settings.entry_of(topic)
                if topic in self.reports or entry is None:
                    continue
                try:
                    await self._run(partial(self._catalog.create, table_name(topic), topic))
                except LakeError as wrong:  # the others' tables can be made
                    failures.append(str(wrong))
                else:
                    self._begin(topic, entry)
            failure = "; ".join(failures)
            if failure not in ("", self.failure):
                log.warning("looking for topics: %s", failure)
            self.failure = failure
            if await self._paused(DISCOVERY_SECONDS):
                return

    async def _copy(
        self, copier: Materializer, settings: TableSettings, report: TableReport
    ) -> None:
        pause, in_a_row = 0.0, 0
        while not await self._paused(pause):
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
        while not await self._paused(pause):
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

    async def _paused(self, seconds: float) -> bool:
        """Wait; whether the lake stops."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return self._stopping.is_set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    @staticmethod
    def _note(report: TableReport, done: Pass, began: float) -> None:
        report.rows += done.rows
        report.bytes += done.bytes
        report.dead += done.dead
        report.lag_messages = done.lag
        if done.snapshot_id is not None:
            report.commits += 1
            report.snapshot_id = done.snapshot_id
            report.committed_ms = int(time.time() * 1000)
            log.info(
                "table %s: %d rows, snapshot %d, %d messages behind",
                *(report.table, done.rows, done.snapshot_id, done.lag),
            )
        if not done.is_behind and not done.failures:
            report.complete_at = began
        failure = "; ".join((*done.failures, *done.group_failures))
        if done.group_failures and failure != report.failure:
            log.warning("table %s: %s", report.table, failure)
        report.failure = failure

    @staticmethod
    def _note_failure(report: TableReport, wrong: Exception) -> None:
        text = str(wrong)
        report.failures += 1
        if report.failure != text:
            is_ours = not isinstance(wrong, LakeError | AerobeeError | OSError)
            log.warning("table %s: %s", report.table, text, exc_info=wrong if is_ours else None)
        report.failure = text or type(wrong).__name__


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
