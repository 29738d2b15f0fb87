"""Upkeep of a table: compaction, expiry of snapshots, sweep. Each alone is safe beside writers,
readers, and the upkeep of others."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table

from . import compaction
from .catalog import LakeCatalog
from .commits import SNAPSHOTS_MAX, TRIES_MAX, Conflict, Unconfirmed, commit, prepare_expiry
from .compaction import FILE_BYTES, Compacted
from .dead_letters import DeadLetters
from .errors import LakeError
from .sweep import OLDER_MS_MIN, Swept
from .sweep import sweep as sweep_files


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The upkeep of the table `name` of a topic."""

    catalog: LakeCatalog
    topic: str
    name: str

    def compact(
        self,
        file_bytes: int = FILE_BYTES,
        *,
        is_stopping: Callable[[], bool] = lambda: False,
        now_ms: int | None = None,
    ) -> Compacted:
        """Make few files of those of closed days. LakeError where that is not allowed."""
        return compaction.compact(
            self._load,
            now_ms=_now_ms() if now_ms is None else now_ms,
            file_bytes=file_bytes,
            is_stopping=is_stopping,
        )

    def expire(
        self, keep: int = SNAPSHOTS_MAX, older_ms: int | None = None, *, now_ms: int | None = None
    ) -> int:
        """Drop the snapshots beyond the newest `keep`, and those older than `older_ms`; their
        number. LakeError when writers are faster each time."""
        now_ms = _now_ms() if now_ms is None else now_ms
        last: Exception | None = None
        for _ in range(TRIES_MAX):
            table = self._load()
            before_ms = 0 if older_ms is None else now_ms - older_ms
            prepared, count = prepare_expiry(table, keep=keep, before_ms=before_ms)
            if not count:
                return 0
            try:
                commit(table, prepared)
            except (Conflict, Unconfirmed) as wrong:  # what was made is not there next time
                last = wrong
            else:
                return count
        raise LakeError(f"expiry gives up after {TRIES_MAX} commits that were not made: {last}")

    def sweep(
        self, older_ms: int = OLDER_MS_MIN, *, is_dry: bool = False, now_ms: int | None = None
    ) -> Swept:
        """Delete the files that no snapshot has; see `sweep`."""
        now_ms = _now_ms() if now_ms is None else now_ms
        return sweep_files(self._load, now_ms=now_ms, older_ms=older_ms, is_dry=is_dry)

    def _load(self) -> Table:
        """The table as it is now, with the dead letters that its snapshots name in their table: an
        expiry would drop those names."""
        for _ in range(TRIES_MAX):
            table = self.catalog.load(self.name, self.topic)
            try:
                DeadLetters(self.catalog, self.topic, self.name).follow(table)
            except Conflict as wrong:
                last = wrong
            else:
                return table
        raise last


def _now_ms() -> int:
    return int(time.time() * 1000)
