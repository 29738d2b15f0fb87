"""A process that we started: its lines of output, its orders, its end.

Standard output is read by a thread into `lines`, so that a caller can wait for a line with a
deadline and never fills a pipe; standard error goes to a file, whose tail is part of every error
message. A Child ends only its own process, by its pid.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ..conf.sources import ENVIRONMENT_PREFIX

STDERR_TAIL_BYTES = 4_000


class ChildFailed(RuntimeError):
    """Raised if the process ended, or did not print the expected line in time."""


class Child:
    """A running process; `with Child(...)` ends it.

    It has the environment of this process without AEROBEE_ variables, which daemons take for
    settings, and with those of `env`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        stderr_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.argv = list(argv)
        self.lines: list[str] = []
        self.stderr_path = stderr_path
        self._changed = threading.Condition()
        self._closed = False
        with stderr_path.open("ab") as stderr:
            self.process = subprocess.Popen(  # noqa: S603 - our own argument list, no shell
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=without_settings() | dict(env or {}),
                cwd=cwd,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def wait_line(self, wanted: Callable[[str], bool], seconds: float, since: int = 0) -> str:
        """The first line from index `since` on that is wanted; ChildFailed after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self.lines[since:]:
                    if wanted(line):
                        return line
                since = len(self.lines)
                left = deadline - time.monotonic()
                if self._closed or left <= 0:
                    why = "ended" if self._closed else f"was silent for {seconds:g} s"
                    raise ChildFailed(f"{self._name()} {why}; {self.tail()}")
                self._changed.wait(left)

    def say(self, line: str) -> None:
        """Writes one line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self, seconds: float = 20) -> int:
        """Closes its input and sends SIGTERM; SIGKILL after `seconds`. Returns the exit code."""
        self._end_input()
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(seconds)

    def close_input(self, seconds: float = 20) -> int:
        """Closes its standard input and waits for its end; SIGKILL after `seconds`."""
        self._end_input()
        return self.wait(seconds)

    def kill(self) -> None:
        """kill -9: no chance to write anything."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.wait(20)

    def wait(self, seconds: float) -> int:
        """Waits for the end; SIGKILL after `seconds`. Returns the exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._end_input()
        self._reader.join(5)
        return code

    def tail(self) -> str:
        """The end of its standard error, for an error message."""
        data = self.stderr_path.read_bytes()[-STDERR_TAIL_BYTES:]
        return f"standard error ends: {data.decode(errors='replace')!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _name(self) -> str:
        return " ".join(word for word in self.argv if len(word) < 60)

    def _end_input(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Reporter(Child):
    """A Child whose lines are JSON objects with an "event"; the Java programs are such."""

    def events(self, event: str) -> list[dict[str, Any]]:
        """All reports of this kind so far."""
        with self._changed:
            lines = list(self.lines)
        found = (json.loads(line) for line in lines if line.startswith("{"))
        return [fields for fields in found if fields["event"] == event]

    def wait_event(self, event: str, seconds: float = 30, since: int = 0) -> dict[str, Any]:
        """The first report of this kind from line `since` on."""
        line = self.wait_line(
            lambda text: text.startswith("{") and json.loads(text)["event"] == event,
            seconds,
            since,
        )
        fields: dict[str, Any] = json.loads(line)
        return fields

    def ask(self, order: str, event: str, seconds: float = 30) -> dict[str, Any]:
        """Gives an order and returns the report that answers it."""
        with self._changed:
            since = len(self.lines)
        self.say(order)
        return self.wait_event(event, seconds, since)


def without_settings() -> dict[str, str]:
    """The environment of this process without what daemons take for settings."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
