"""The file of a history, so that it outlives the console: written whole, every few minutes.

The file is one line that names the form, one line of JSON, and the points of all series one after
the other as 32-bit floats. The line of JSON has the step in ms, the order of the bytes, the SHA-256
of the points, and for each series its key, the number of its first step and its points.
"""

import asyncio
import hashlib
import logging
import os
import sys
from array import array
from pathlib import Path
from typing import Annotated, Any

import msgspec

from .history import History, Saved

FORM = b"aerobee console history 1\n"
SAVE_SECONDS = 300.0
HEAD_BYTES_MAX = 64 << 20
LEFT = ".damaged"  # what a file that can't be read is renamed to

log = logging.getLogger(__name__)


class Head(msgspec.Struct):
    """The line of JSON."""

    step_ms: Annotated[int, msgspec.Meta(gt=0)]
    sha256: str
    order: str
    series: list[tuple[list[str | int], int, Annotated[int, msgspec.Meta(ge=0)]]]


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
        rows.append(([*key], first, len(points) // 4))
    head = Head(step_ms, digest.hexdigest(), sys.byteorder, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(FORM + msgspec.json.encode(head) + b"\n")
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
        try:
            head = msgspec.json.decode(file.readline(HEAD_BYTES_MAX), type=Head)
        except (msgspec.MsgspecError, RecursionError):
            raise ValueError("has a head that can't be read") from None
        total = sum(count for _, _, count in head.series)
        size = os.fstat(file.fileno()).st_size - file.tell()
        if 4 * total != size:
            raise ValueError(f"has {size} bytes of points, its head says {4 * total}")
        found, checked = [], hashlib.sha256()
        for key, first, count in head.series:
            raw = file.read(4 * count)
            checked.update(raw)
            points = array("f", raw)
            if head.order != sys.byteorder:
                points.byteswap()
            found.append((tuple(key), first, points))
        if checked.hexdigest() != head.sha256:
            raise ValueError("has points that were changed")
    return head.step_ms, found
