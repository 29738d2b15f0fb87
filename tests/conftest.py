"""Daemons for tests: each listens on a free port of the loopback and is stopped afterwards."""

import re
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer

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
