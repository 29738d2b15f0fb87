"""Brokers in this process for commands that run in it, too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from aerobee.testing.cluster import LocalCluster

from .command import Inside, environment


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One broker for all tests of a file, each with topics of its own."""
    with LocalCluster() as one:
        yield one


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would set up a client or a daemon is not there."""
    for name in ("NAMESRV_ADDR", "AEROBEE_TLS", "AEROBEE_TLS_CA", "AEROBEE_TLS_INSECURE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def inside(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Inside]:
    """Commands in this process, in the environment that `aerobee` of command.py has."""
    for name in os.environ.keys() - environment():
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "nice", lambda _: 0)  # this process can't take it back
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Inside(capsys, monkeypatch, tmp_path_factory.mktemp("inside"))
    for number, handler in handlers.items():  # uvloop leaves those of a daemon's closed loop
        signal.signal(number, handler)
