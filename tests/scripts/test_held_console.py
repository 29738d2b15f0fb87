"""The console of `aerobee up`: its port is there at once, its process with the first visitor."""

import json
import os
import re
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness.child import Child
from aerobee.scripts.held_console import HeldConsole

from ..waiting import PROCESS, until
from .command import output, refused, running, up

pytest.importorskip("jinja2")

NICENESS_MAX = 19  # of Linux: a run that has it can have no child with a lower priority


def consoles(pid: int) -> list[int]:
    """The consoles that a process has started."""
    started: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            started += map(int, (task / "children").read_text().split())
    found = []
    for one in started:
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"--given-socket" in Path(f"/proc/{one}/cmdline").read_bytes():
                found.append(one)
    return found


def opener() -> urllib.request.OpenerDirector:
    """A browser, which keeps cookies."""
    return urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))


def link_of(child: Child, since: int = 0) -> str:
    """The link that logs in, from the line that the console says when it has started."""
    line = child.wait_line(lambda text: "log in once: " in text, PROCESS, since)
    return line.partition("log in once: ")[2].strip()


def test_the_first_visitor_starts_the_console_with_low_priority_and_the_next_one_again(
    tmp_path: Path,
) -> None:
    with running(tmp_path, *up(tmp_path / "store")) as daemon:
        found = re.search(r", console (http://127\.0\.0\.1:\d+/);", daemon.ready)
        assert found, daemon.ready
        url = found[1]
        assert consoles(daemon.child.pid) == []
        browser = opener()
        with browser.open(url, timeout=PROCESS) as answer:
            assert "Log in" in answer.read().decode()
        (console,) = consoles(daemon.child.pid)
        niceness = os.getpriority(os.PRIO_PROCESS, daemon.child.pid)
        assert os.getpriority(os.PRIO_PROCESS, console) > min(niceness, NICENESS_MAX - 1)
        with browser.open(link_of(daemon.child), timeout=PROCESS) as answer:
            assert "Messages stored" in answer.read().decode()
        with browser.open(daemon.page, timeout=PROCESS) as answer:
            assert f"console: {url}\n" in answer.read().decode()
        os.kill(console, 9)
        since = len(daemon.child.lines)
        with opener().open(url, timeout=PROCESS) as answer:
            assert answer.status == 200
        assert link_of(daemon.child, since).startswith(url)
        (console,) = consoles(daemon.child.pid)
    assert not Path(f"/proc/{console}").exists()


async def test_it_speaks_tls_to_a_cluster_that_takes_nothing_else(tmp_path: Path) -> None:
    words = [*up(tmp_path / "store"), "--set", "tlsServerMode=enforcing"]
    env = {"AEROBEE_TLS": "true", "AEROBEE_TLS_INSECURE": "true"}
    with running(tmp_path, *words, env=env) as daemon:
        url = daemon.ready.partition(", console ")[2].partition(";")[0]
        browser = opener()
        browser.open(url, timeout=PROCESS).close()
        browser.open(link_of(daemon.child), timeout=PROCESS).close()

        def overview() -> dict[str, Any]:
            with browser.open(f"{url}api/overview", timeout=PROCESS) as answer:
                found: dict[str, Any] = json.load(answer)
                return found

        await until(lambda: overview()["topics"] is not None, overview, pause=0.1, seconds=PROCESS)
        assert overview()["samples"]["marks"] == []


def test_a_port_that_is_taken_is_said_and_the_broker_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = [*up(tmp_path / "store"), "--console-port", str(port)]
        with running(tmp_path, *words) as daemon:
            assert f", no console, as port {port} is taken; --console-port gives" in daemon.ready
            assert daemon.child.lines == [daemon.ready]


def test_without_a_console_its_port_is_free(tmp_path: Path) -> None:
    with running(tmp_path, *up(tmp_path / "store"), "--no-console") as daemon:
        assert ", console http" not in daemon.ready


def test_a_link_starts_the_console_and_logs_in(tmp_path: Path) -> None:
    with running(tmp_path, *up(tmp_path / "store")) as daemon:
        found = re.search(r", console (http://127\.0\.0\.1:(\d+)/);", daemon.ready)
        assert found, daemon.ready
        link = ["console", "--link", "--port", found[2]]
        first, second = (output(*link).strip() for _ in range(2))
        assert first.startswith(f"{found[1]}login?link=")
        with opener().open(second, timeout=PROCESS) as answer:
            assert "Messages stored" in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            opener().open(first, timeout=PROCESS)
    assert f"no console of this user runs at port {found[2]} of this machine" in refused(*link)


async def test_without_its_package_the_ready_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aerobee.scripts.held_console.find_spec", lambda _: None)
    held = HeldConsole("127.0.0.1:1", 0)
    await held.start()
    assert (held.url, held.said) == (
        None,
        ", no console (pip install 'aerobee[console]' gives one)",
    )
