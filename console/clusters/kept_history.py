"""The file of a history, so that it outlives the console: written whole, every few minutes.

The file is one line that names the form, one line of JSON, and the points of all series one after
the other as 32-bit floats. The line of JSON has the step in ms, the order of the bytes, the SHA-256
of the points, and for each series its key, the number of its first step and its points.
"""

import asyncio
import hashlib
import json
import logging
import os
import sys
from array import array
from pathlib import Path
from typing import Any

from .history import History, Saved

FORM = b"aerobee console history 1\n"
SAVE_SECONDS = 300.0
HEAD_BYTES_MAX = 64 << 20
LEFT = ".damaged"  # what a file that can't be read is renamed to

log = logging.getLogger(__name__)


class KeptHistory:
    """Reads the file at the start, and writes it until `stop`."""

    def __init__(self, history: History, path: Path) -> None:
        self._history = history
        self._path = path
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over what the file has; a damaged one is set aside."""
        try:
            found = await asyncio.to_thread(read, self._path)
        except ValueError as wrong:
            aside = self._path.with_name(self._path.name + LEFT)
            os.replace(self._path, aside)
            log.warning(
                "the history %s %s; it is now %s, a new one begins", self._path, wrong, aside
            )
            found = None
        if found is not None:
            self._history.restore(*found)
        self._task = asyncio.create_task(self._run(), name="console-history")

    async def stop(self) -> None:
        """Write once more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._save()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self._save()

    async def _save(self) -> None:
        step_ms, series = self._history.snapshot()
        try:
            await asyncio.to_thread(write, self._path, step_ms, series)
        except OSError as wrong:
            log.warning("the history can't be written: %s; make room, or correct --data", wrong)


def write(path: Path, step_ms: int, series: Saved) -> None:
    """Replace the file with these series."""
    digest = hashlib.sha256()
    rows = []
    for key, first, points in series:
        digest.update(points)
        rows.append([list(key), first, len(points) // 4])
    head = {
        "step_ms": step_ms,
        "sha256": digest.hexdigest(),
        "order": sys.byteorder,
        "series": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(FORM + json.dumps(head).encode() + b"\n")
        for _, _, points in series:
            file.write(points)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def read(path: Path) -> tuple[int, list[tuple[tuple[Any, ...], int, "array[float]"]]] | None:
    """The step in ms and the series; None without a file. ValueError for one that is damaged."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        if file.readline(len(FORM)) != FORM:
            raise ValueError("is of another form")
        line = file.readline(HEAD_BYTES_MAX)
        try:
            head = json.loads(line)
            step_ms, digest = int(head["step_ms"]), str(head["sha256"])
            rows = [
                (tuple(map(_part, key)), int(first), int(count))
                for key, first, count in head["series"]
            ]
            is_foreign = head["order"] != sys.byteorder
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError("has a head that can't be read") from None
        total = sum(count for _, _, count in rows)
        size = os.fstat(file.fileno()).st_size - file.tell()
        if step_ms <= 0 or min((count for *_, count in rows), default=0) < 0 or 4 * total != size:
            raise ValueError(f"has {size} bytes of points, its head says {4 * total}")
        found, checked = [], hashlib.sha256()
        for key, first, count in rows:
            raw = file.read(4 * count)
            checked.update(raw)
            points = array("f", raw)
            if is_foreign:
                points.byteswap()
            found.append((key, first, points))
        if checked.hexdigest() != digest:
            raise ValueError("has points that were changed")
    return step_ms, found


def _part(value: Any) -> Any:
    if not isinstance(value, str | int):
        raise TypeError
    return value
