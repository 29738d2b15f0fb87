"""How far a long look at a log has come: a bar on a terminal, a line now and then elsewhere.

Everything goes to standard error, and nothing at all is shown of what takes less than a moment.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOW_AFTER_SECONDS = 1.0
LINE_SECONDS = 5.0
MIB = 1 << 20

Progress = Callable[[int, int, int], None]  # bytes of the log done, all of them, messages done


@contextmanager
def bytes_bar(what: str, *, lines: bool = False) -> Iterator[Progress]:
    """Shows progress told in bytes of the log and messages until the block ends.

    With `lines` also where standard error is no terminal, such as a service's journal.
    """
    if not sys.stderr.isatty():
        yield _Lines(what).told if lines else _nothing
        return
    from tqdm import tqdm  # a daemon is to start at once

    with tqdm(
        desc=what, unit="B", unit_scale=True, unit_divisor=1024, delay=SHOW_AFTER_SECONDS
    ) as bar:

        def told(done: int, whole: int, messages: int) -> None:
            bar.total = whole
            bar.set_postfix_str(f"{messages:,} messages", refresh=False)
            bar.update(done - bar.n)

        yield told


class _Lines:
    """A line every few seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last = time.monotonic()

    def told(self, done: int, whole: int, messages: int) -> None:
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
