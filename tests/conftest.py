"""Daemons for tests, and the order and the JVM options of a whole run.

Each daemon listens on a free port of the loopback and is stopped afterwards.
"""

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.scripts.harness.java_side import QUICK_START
from hypothesis import settings

# Folders whose files take minutes. They run first, so that no worker ends long after the others.
SLOW_FOLDERS = ("simulation", "loss", "spark", "interop", "examples")

# The same examples in every run, however long one of them takes.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

# Where no event loop was ever set, pytest-asyncio makes one that nothing closes.
asyncio.set_event_loop(None)

# Every JVM that a test starts for Spark lives for seconds.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_START))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slow folders first; within a folder the order stays."""
    ranks = {folder: rank for rank, folder in enumerate(SLOW_FOLDERS)}

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
        return ranks.get(folder, len(ranks))

    items.sort(key=rank)


WANTS_A_BROKER = re.compile(r"aerobee\.(?:broker|store|testing)|aerobee_cluster|from \.+broker")


def why_no_broker() -> str:
    """The reason why no broker runs on this system, or nothing."""
    try:
        import_module("aerobee.store.files.disk")
    except ImportError as error:
        return str(error)
    return ""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Where no broker runs, test files that import one are left out."""
    if collection_path.name.startswith("test_") and why_no_broker():
        return WANTS_A_BROKER.search(collection_path.read_text("utf-8")) is not None or None
    return None


@pytest.fixture
async def namesrv() -> AsyncIterator[NameServer]:
    """A running name server with default settings."""
    server = NameServer(NamesrvConfig(listen_port=0))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def quiet() -> Iterator[None]:
    """Keeps the messages of the store out of the log, for tests that open it thousands of times."""
    log = logging.getLogger("aerobee.store")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
