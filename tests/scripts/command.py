"""The command `aerobee` as a user runs it: a process of its own, on free ports and a fresh store.

Every wait has a deadline and fails with what there was instead.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aerobee.harness.child import Child, without_settings
from aerobee.scripts.cli import main

from ..waiting import PROCESS

AEROBEE = [sys.executable, "-m", "aerobee.scripts.cli"]
# Segments of a test's store: the real ones take a GiB each.
SMALL = ["--set", "mappedFileSizeCommitLog=4194304", "--set", "mappedFileSizeConsumeQueue=60000"]
SMALL += ["--set", "mappedFileSizeTimerLog=1048576", "--set", "maxIndexNum=400000"]
FREE_PORTS = ["--namesrv-port", "0", "--listen-port", "0", "--set", "httpPort=0"]
FREE_PORTS += ["--console-port", "0"]


def up(store: Path) -> list[str]:
    """The words of `aerobee up` with this store."""
    return ["up", *FREE_PORTS, *SMALL, "--store", str(store)]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without what would set up an aerobee."""
    clean = without_settings()
    clean.pop("NAMESRV_ADDR", None)
    return {**clean, **(more or {})}


def aerobee(
    *words: str, data: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return subprocess.run(
        [*AEROBEE, *words],
        input=data,
        capture_output=True,
        text=True,
        timeout=PROCESS,
        env=environment(env),
        cwd=cwd,
        check=False,
    )


def output(*words: str, data: str = "") -> str:
    """What a command that works prints; it says nothing besides, and shows no bar to a pipe."""
    return printed(aerobee(*words, data=data))


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*words: str, data: str = "", env: Mapping[str, str] | None = None) -> str:
    """The one sentence of a command that can't do what it was asked."""
    return sentence(words[0], aerobee(*words, data=data, env=env))


def sentence(command: str, done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"aerobee {command}: ")
    return lines[0]


class Daemon:
    """A running `aerobee up`, `namesrv` or `broker`: its ready line and what it says."""

    def __init__(self, child: Child, ready: str) -> None:
        self.child = child
        self.ready = ready

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self._find(r"name server(?: is ready on)? (127\.0\.0\.1:\d+)")

    @property
    def broker(self) -> str:
        """Where the broker listens."""
        return self._find(r"(?:broker|is ready on) (127\.0\.0\.1:\d+) \(clients")

    @property
    def page(self) -> str:
        """The URL of the HTTP endpoint."""
        return self._find(r"HTTP (http://[^;, ]+)")

    def _find(self, pattern: str) -> str:
        found = re.search(pattern, self.ready)
        assert found is not None, self.ready
        return found[1]


@contextmanager
def running(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A daemon from its ready line until the end of the block, which is clean: exit code 0."""
    folder.mkdir(exist_ok=True)
    if words[0] == "namesrv":  # its default is in the user's home
        words = (words[0], "--set", f"kvConfigPath={folder / 'kvConfig.json'}", *words[1:])
    stderr = folder / f"{words[0]}.stderr"
    own = {"XDG_STATE_HOME": str(folder / "state"), **(env or {})}
    child = Child([*AEROBEE, *words], stderr, cwd=folder, env=environment(own))
    with child:
        ready = child.wait_line(lambda line: "ready" in line, PROCESS)
        yield Daemon(child, ready)
        code = child.stop()
        assert code == 0, child.tail()
        assert "Traceback" not in stderr.read_text()


class Inside:
    """Runs commands in this process, which is quicker: `done` as `aerobee`, the others as those
    of their names. A call returns exit code, standard output, standard error."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._input = folder / "standard input"

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(words)
        out, error = self._capsys.readouterr()
        return code, out, error

    def objects(self, *words: str) -> list[dict[str, Any]]:
        """What a command that works prints with --json."""
        code, out, error = self(*words, "--json")
        assert (code, error) == (0, ""), (code, out, error)
        return [json.loads(line) for line in out.splitlines()]

    def done(self, *words: str, data: str = "") -> subprocess.CompletedProcess[str]:
        self._input.write_text(data, newline="")
        with self._input.open() as found, self._monkeypatch.context() as changed:
            changed.setattr(sys, "stdin", found)
            try:
                code, out, error = self(*words)
            except SystemExit as ended:  # of the parser
                code, (out, error) = cast(int, ended.code), self._capsys.readouterr()
        return subprocess.CompletedProcess(words, code, out, error)

    def output(self, *words: str, data: str = "") -> str:
        return printed(self.done(*words, data=data))

    def refused(self, *words: str, data: str = "") -> str:
        return sentence(words[0], self.done(*words, data=data))

    def read(self, topic: str, *words: str) -> str:
        """What `sub` prints. It may be quicker than the news of a topic that a send made."""
        done = self.done("sub", topic, *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr in ("", f"topic {topic} does not exist yet; waiting for it\n")
        return done.stdout
