"""Progress of a long recovery: a bar on a terminal, lines elsewhere, nothing for what is quick."""

import io
import shutil
import sys
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import load_broker
from aerobee.scripts.output import progress
from aerobee.scripts.output.progress import MIB, bytes_bar, rows_bar
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore

from ...clocks import Seconds


class Terminal(io.StringIO):
    """A standard error that a person looks at."""

    def isatty(self) -> bool:
        return True


def test_lines_come_every_few_seconds_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Seconds()
    monkeypatch.setattr("aerobee.scripts.output.progress.time.monotonic", clock)
    with bytes_bar("recovering the store", lines=True) as told:
        for step in range(1, 12):
            clock.now += 1
            told(step * 100 * MIB, 2_000 * MIB, step * 1_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "recovering the store: 25 % of the log, 5,000 messages, 500 of 2,000 MiB",
        "recovering the store: 50 % of the log, 10,000 messages, 1,000 of 2,000 MiB",
    ]


def test_nothing_is_said_to_a_pipe_that_did_not_ask(capsys: pytest.CaptureFixture[str]) -> None:
    with bytes_bar("checking") as told:
        told(1, 2, 3)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_with_percent_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "SHOW_AFTER_SECONDS", 0)
    with bytes_bar("checking") as told:
        told(50 * MIB, 200 * MIB, 12_345)
    assert "checking" in terminal.getvalue()
    assert "25%" in terminal.getvalue()
    assert "12,345 messages" in terminal.getvalue()


async def test_a_broker_tells_how_far_its_recovery_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.walk.PROGRESS_BYTES", 4_000)
    sizes = StoreSettings(segment_bytes=1 << 20)
    store = MessageStore(tmp_path, sizes, bytes(8), lambda: 1)
    store.open()
    for _ in range(50):
        store.put(Message(("T", 0), 0, 0, 1, bytes(8), bytes(300), b"", 0))
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    words = ["listenPort=0", "mappedFileSizeCommitLog=1048576", f"storePathRootDir={tmp_path}"]
    config, _ = load_broker(options=words, environ={})
    told: list[tuple[int, int, int]] = []
    broker = Broker(config, progress=lambda *steps: told.append(steps))
    await broker.start()
    await broker.stop()
    assert told
    assert told == sorted(told)
    assert told[-1][2] == 50


def test_rows_are_told_now_and_then_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Seconds()
    monkeypatch.setattr("aerobee.scripts.output.progress.time.monotonic", clock)
    with rows_bar("ingesting orders", 50_000) as told:
        clock.now += 60  # Spark starts
        for step in range(1, 30):
            clock.now += 1
            told(min(step, 15) * 1000, 50_000 - 1000 * min(step, 15))
    assert capsys.readouterr().err.splitlines() == [
        "ingesting orders: 11,000 of 50,000 rows, 1,000 a second, 39,000 left",
        "ingesting orders: 15,000 of 50,000 rows, 400 a second, 35,000 left",
    ]


def test_a_terminal_has_a_bar_with_rows_rate_and_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with rows_bar("ingesting orders", None) as told:
        told(2_000, 5_432)
        told(7_432, None)
    shown = screen.getvalue()
    assert "lag 5,432" in shown
    assert "7.43k rows" in shown
    assert "rows/s" in shown
