"""Daemons for tests, and what every run of the suite does: tiers, limits, order, repeated tests.

Each daemon listens on a free port of the loopback and is stopped afterwards.
"""

import asyncio
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import FrameType

import pytest
from aerobee.harness.java_side import QUICK_START
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.store.files import disk
from hypothesis import settings

from . import tiers
from .repeats import Repeats
from .tiers import Tier
from .waiting import SLOWNESS

TESTS = Path(__file__).parent
ROOM = (1 << 30, 9 << 30)  # bytes used and free on the disk of every store
# Folders whose files take minutes. They run first, so that no worker ends long after the others.
SLOW_FOLDERS = ("simulation", "loss", "spark", "interop", "examples")

# The same examples in every run, however long one of them takes.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

# Where no event loop was ever set, pytest-asyncio makes one that nothing closes.
asyncio.set_event_loop(None)

# Every JVM that a test starts for Spark lives for seconds.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_START))


# A script that starts a run with `&` has SIGINT ignored, and so would every daemon of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that tests/run.py gives; none of them is needed for `pytest tests/store`."""
    group = parser.getgroup("aerobee")
    group.addoption("--tier", type=Tier, choices=list(Tier), help="run the tests of this tier only")
    group.addoption("--failures", type=Path, help="write the tests that failed to this file")
    group.addoption("--repeated", type=Path, help="these failed before: those that pass are FLAKY")


def pytest_configure(config: pytest.Config) -> None:
    """Notes what fails, in the process that sees all results."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Repeats(config), "aerobee-repeats")


@pytest.fixture(scope="session", autouse=True)
def room_on_the_disk() -> Iterator[None]:
    """The brokers in this process find room on the machine's disk, however full it is."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(disk.Disk, "room", lambda *_: ROOM)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of the tier, gives each its limit, and puts the slow folders first."""
    tier: Tier | None = config.getoption("tier")
    ranks = {folder: rank for rank, folder in enumerate(SLOW_FOLDERS)}
    ordered: list[tuple[int, pytest.Item]] = []
    others: list[pytest.Item] = []
    for item in items:
        path = _below_tests(item.path)
        markers = frozenset(marker.name for marker in item.iter_markers())
        place = tiers.place(path, markers)
        is_of_it = tier is None or tier == place.tier or tier in markers & {Tier.SMOKE}
        if "quarantine" in markers and tier is not None:  # it runs at night
            is_of_it = tier is Tier.SOAK
        if not is_of_it:
            others.append(item)
            continue
        if place.is_process:
            item.add_marker("process")
        item.add_marker(pytest.mark.timeout(tiers.TEST_SECONDS[tier or place.tier] * SLOWNESS))
        ordered.append((ranks.get(path.parts[0], len(ranks)), item))
    ordered.sort(key=lambda each: each[0])
    items[:] = [item for _, item in ordered]
    if others:
        config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    """A test that takes too long shows first where each task of its event loop waits."""
    done = yield
    end = signal.getsignal(signal.SIGALRM)

    def show_tasks(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):  # no event loop runs
            for task in asyncio.all_tasks():
                task.print_stack()
        if callable(end):
            end(number, frame)

    if callable(end):
        signal.signal(signal.SIGALRM, show_tasks)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test of the gate that is skipped has failed: what it needs is missing."""
    report = yield
    gates = item.config.getoption("tier") is Tier.SMOKE and os.environ.get("CI") == "true"
    if gates and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"CI runs every test of the tier smoke, and this one not: {skip_reason(report)}"
        )
    return report


def skip_reason(report: pytest.TestReport) -> str:
    """What a skipped test said."""
    place = report.longrepr
    return str(place[2] if isinstance(place, tuple) else place)


def _below_tests(path: Path) -> PurePosixPath:
    inside = path.relative_to(TESTS) if path.is_relative_to(TESTS) else Path(path.name)
    return PurePosixPath(inside.as_posix())


WANTS_A_BROKER = re.compile(r"aerobee\.(?:broker|store|testing)|aerobee_cluster|from \.+broker")


def why_no_broker() -> str:
    """The reason why no broker runs on this system, or nothing."""
    try:
        import_module("aerobee.store.files.disk")
    except ImportError as error:
        return str(error)
    return ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files without a test of the tier, or that need a broker where none runs."""
    if not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    text = collection_path.read_text("utf-8")
    tier: Tier | None = config.getoption("tier")
    if tier is not None and not tiers.may_hold(_below_tests(collection_path), text, tier):
        return True
    if why_no_broker() and WANTS_A_BROKER.search(text) is not None:
        return True
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
