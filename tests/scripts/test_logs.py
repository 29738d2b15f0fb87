"""The log of a command: levels by module, JSON, files that don't grow without end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from aerobee.testing.cluster import LocalCluster

from ..waiting import PROCESS
from .command import FREE_PORTS, SMALL, Inside, aerobee, running

PROGRAM = """
import argparse, logging, sys
from aerobee.scripts import logs

parser = argparse.ArgumentParser()
logs.add_options(parser, "info", logs.FULL)
logs.start(parser.parse_args(sys.argv[1:]))
{body}
"""


def logged(body: str, *words: str) -> list[str]:
    """The lines on standard error of a program that logs with these options."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body), *words],
        capture_output=True,
        text=True,
        timeout=PROCESS,
        check=True,
    )
    return done.stderr.splitlines()


def test_a_module_has_a_level_of_its_own() -> None:
    body = """
for name in ("aerobee.broker", "aerobee.store", "aerobee.store.index.index"):
    for level in ("debug", "warning", "error"):
        getattr(logging.getLogger(name), level)("%s of %s", level, name)
"""
    given = "warning,aerobee.store=debug"
    lines = logged(body, "--log-level", given, "--log-level", "aerobee.store.index.index=error")
    assert [line.rpartition(": ")[2] for line in lines] == [
        "warning of aerobee.broker",
        "error of aerobee.broker",
        "debug of aerobee.store",
        "warning of aerobee.store",
        "error of aerobee.store",
        "error of aerobee.store.index.index",
    ]


def test_json_has_an_object_a_line_with_what_went_wrong() -> None:
    body = """
log = logging.getLogger("aerobee.store")
log.info("two\\nlines of %s \\x1b", "\\xfc")
try:
    raise ValueError("bad")
except ValueError:
    log.exception("failed")
"""
    first, second = map(json.loads, logged(body, "--log-format", "json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    message = "two\nlines of ü \x1b"
    assert first == {"level": "info", "logger": "aerobee.store", "message": message}
    assert (second["level"], second["message"]) == ("error", "failed")
    assert second["exception"].startswith("Traceback")
    assert second["exception"].endswith("ValueError: bad")


def test_a_log_file_is_cut_and_old_ones_go(tmp_path: Path) -> None:
    body = """
for _ in range(40):
    logging.getLogger("aerobee").info("%s", "x" * (200 << 10))
"""
    words = ("--log-file", str(tmp_path / "aerobee.log"), "--log-file-mib", "1")
    assert logged(body, *words) == []
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["aerobee.log", *(f"aerobee.log.{number}" for number in range(1, 5))]
    assert all(path.stat().st_size <= 1 << 20 for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--log-level", "loud"), "'loud' is no level; write one of debug, info, warning, error"),
        (("--log-level", "info,a=b"), "'a=b' is no level"),
        (("--log-file-mib", "0"), "'0' is no size from 1 to 4096 MiB"),
        (("--log-format", "xml"), "invalid choice: 'xml'"),
    ],
)
def test_what_is_no_level_or_size_is_told(
    inside: Inside, words: tuple[str, ...], says: str
) -> None:
    done = inside.done("up", *words)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_daemon_writes_its_log_where_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    words = ("--log-file", str(file), "--log-format", "json", "--log-level", "info")
    store = ("--store", str(tmp_path / "store"))
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, *store, *words) as daemon:
        assert daemon.child.tail() == "standard error ends: ''"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert "stopping" in {one["message"] for one in found}
    refused = aerobee("broker", "--log-file", str(tmp_path / "no" / "log"))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"aerobee broker: {tmp_path}/no/log: No such file")


def test_at_debug_a_client_tells_of_connections_and_sends(cluster: LocalCluster) -> None:
    done = aerobee(
        "pub",
        "logged",
        "-n",
        cluster.name_server,
        "--log-level",
        "aerobee.client=debug",
        "--log-level",
        "aerobee.protocol=debug",
        data="hello\n",
    )
    assert done.returncode == 0
    broker = cluster.brokers[0]
    assert f"connected to {cluster.name_server}" in done.stderr
    assert f"connected to {broker.address}" in done.stderr
    assert re.search(
        r"sent \w+ to topic logged: queue \d of broker-a, offset 0, SEND_OK", done.stderr
    )


def test_a_line_of_a_member_carries_its_name() -> None:
    body = """
logs.copy("a-1", "2030-01-01 INFO aerobee.store: opened")
logs.copy("a-1", '{"level": "info", "message": "opened"}')
"""
    text, _ = logged(body, "--log-level", "error")  # the member chose what it logs
    assert text == "a-1 2030-01-01 INFO aerobee.store: opened"
    crash, line = map(json.loads, logged(body, "--log-format", "json"))
    assert line == {"member": "a-1", "level": "info", "message": "opened"}
    assert (crash["member"], crash["level"]) == ("a-1", "error")


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_settings_give_format_file_and_levels_of_the_log(tmp_path: Path, command: str) -> None:
    file = tmp_path / "log.json"
    conf = tmp_path / "own.yaml"
    conf.write_text(
        f"logFormat: json\nlogFile: {file}\nlogFileMib: 1\n"
        "logLevel: error,aerobee.scripts.serving=info\n"
    )
    own = {
        "broker": ("--set", f"storePathRootDir={tmp_path / 'store'}", *SMALL),
        "namesrv": ("--set", f"kvConfigPath={tmp_path / 'kv.json'}"),
    }[command]
    words = ("-c", str(conf), "--set", "listenPort=0", "--set", "httpPort=-1", *own)
    with running(tmp_path, command, *words) as daemon:
        assert daemon.child.tail() == "standard error ends: ''"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert {(one["logger"], one["message"]) for one in found} == {
        ("aerobee.scripts.serving", "stopping")
    }
    refused = aerobee(command, "--log-level", "aerobee.stroe=debug")
    assert "logLevel names the logger 'aerobee.stroe'" in refused.stderr
