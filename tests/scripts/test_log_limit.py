"""Lines about connections: five of a kind, then their number."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aerobee.scripts.log_limit import LINES_MAX, SECONDS, LogLimit

SERVED = "aerobee.protocol.aio.connection"


class Lines(logging.Handler):
    """Keeps what is written; `pass_time` lets the time of all kinds end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._due: list[Callable[[], None]] = []
        self.limit = LogLimit(self.handle, self._later)
        self.addFilter(self.limit)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        assert seconds == SECONDS
        self._due.append(act)

    def pass_time(self) -> None:
        due, self._due = self._due, []
        for act in due:
            act()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def log(self, name: str, text: str, *values: object, level: int = logging.WARNING) -> None:
        self.handle(logging.LogRecord(name, level, "", 0, text, values, None))


def test_lines_about_single_messages_are_counted_too() -> None:
    handler = Lines()
    for place in range(1_000):
        handler.log("aerobee.broker.scheduled.delays", "message at %d is not there", place)
    handler.pass_time()
    assert len(handler.lines) == LINES_MAX + 1
    assert handler.lines[-1].endswith("and 995 more in 60 s, the last: message at 999 is not there")


def test_of_many_lines_alike_the_first_ones_and_the_number_are_written() -> None:
    handler = Lines()
    for number in range(1_209):
        handler.log(SERVED, "closing %d: %s", number, "bad")
    handler.log(SERVED, "another")
    first = [f"WARNING closing {number}: bad" for number in range(LINES_MAX)]
    assert handler.lines == [*first, "WARNING another"]
    handler.pass_time()
    assert handler.lines[LINES_MAX + 1 :] == [
        "WARNING and 1,204 more in 60 s, the last: closing 1208: bad"
    ]
    handler.log(SERVED, "closing %d: %s", 1_209, "bad")  # a new minute
    assert handler.lines[-1] == "WARNING closing 1209: bad"
    handler.pass_time()
    assert handler.lines[-1] == "WARNING closing 1209: bad"


def test_the_end_of_the_process_writes_the_numbers() -> None:
    handler = Lines()
    for _ in range(LINES_MAX + 2):
        handler.log("aerobee.broker.naming.registration", "gone")
    handler.limit.end()
    assert handler.lines[-1] == "WARNING and 2 more in 60 s, the last: gone"
    handler.limit.end()
    assert len(handler.lines) == LINES_MAX + 1


def test_other_lines_all_pass() -> None:
    handler = Lines()
    for _ in range(2 * LINES_MAX):
        handler.log("aerobee.store", "full")
        handler.log("aerobee.protocol.aiox", "full")
        handler.log(SERVED, "bytes", level=logging.DEBUG)
        handler.log("aerobee.namesrv.handlers", "registered", level=logging.INFO)
    assert len(handler.lines) == 8 * LINES_MAX
