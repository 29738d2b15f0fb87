"""Progress of long work: a bar on a terminal, else a line every few seconds.

All of it goes to standard error; work of less than a second shows nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOW_AFTER_SECONDS = 1.0
LINE_SECONDS = 5.0
ROWS_LINE_SECONDS = 10.0  # a stream may be endless
MIB = 1 << 20

Progress = Callable[[int, int, int], None]  # bytes done, bytes in all, messages done
RowsProgress = Callable[[int, int | None], None]  # rows so far, messages left if known


@contextmanager
def bytes_bar(what: str, *, lines: bool = False, counted: str = "messages") -> Iterator[Progress]:
    """Shows progress in bytes, and in messages or what else is `counted`, until the block ends.

    With `lines` also if standard error is no terminal, such as a service's journal.
    """
    if not sys.stderr.isatty():
        yield _Lines(what).show if lines else _nothing
        return
    from tqdm import tqdm  # imported on use: a daemon must start at once

    with tqdm(
        desc=what, unit="B", unit_scale=True, unit_divisor=1024, delay=SHOW_AFTER_SECONDS
    ) as bar:

        def show(done: int, whole: int, messages: int) -> None:
            bar.total = whole
            bar.set_postfix_str(f"{messages:,} {counted}", refresh=False)
            bar.update(done - bar.n)

        yield show


@contextmanager
def rows_bar(what: str, total: int | None) -> Iterator[RowsProgress]:
    """Shows rows, rows per second and the messages left, until the block ends.

    If standard error is no terminal, one line every few seconds in which rows were written.
    """
    if not sys.stderr.isatty():
        yield _RowLines(what, total).show
        return
    from tqdm import tqdm

    with tqdm(total=total, unit=" rows", unit_scale=True, desc=what) as bar:

        def show(rows: int, lag: int | None) -> None:
            if rows and not bar.n:
                bar.unpause()  # the start of Spark is not counted
            if lag is not None:
                bar.set_postfix_str(f"lag {lag:,}", refresh=False)
            bar.update(rows - bar.n)

        yield show


class _RowLines:
    """A line every few seconds in which rows were written."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total:,}"
        self._last = time.monotonic()
        self._rows = 0

    def show(self, rows: int, lag: int | None) -> None:
        now = time.monotonic()
        if rows and not self._rows:  # the start of Spark is not counted
            self._last, self._rows = now, rows
        passed = now - self._last
        if passed < ROWS_LINE_SECONDS or rows == self._rows:
            return
        rate = (rows - self._rows) / passed
        left = "" if lag is None else f", {lag:,} left"
        self._last, self._rows = now, rows
        print(
            f"{self._what}: {rows:,}{self._of} rows, {rate:,.0f} a second{left}",
            file=sys.stderr,
            flush=True,
        )


class _Lines:
    """A line every few seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last = time.monotonic()

    def show(self, done: int, whole: int, messages: int) -> None:
        now = time.monotonic()
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        print(
            f"{self._what}: {100 * done // max(1, whole)} % of the log, {messages:,} messages, "
            f"{done // MIB:,} of {whole // MIB:,} MiB",
            file=sys.stderr,
            flush=True,
        )


def _nothing(done: int, whole: int, messages: int) -> None:
    pass
