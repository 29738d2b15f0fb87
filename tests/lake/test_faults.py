"""A catalog or a file system that fails at any call: no row is missing after it, none is twice."""

import errno
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer

from .doors import Doors
from .memory_log import MemoryLog
from .tables import catalog_in, contents

ROUNDS = 3
CALLS_AT_LEAST = 40
STEP = 7  # the parts that the calls are tried in, one test each


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def story(folder: Path, doors: Doors, patch: pytest.MonkeyPatch) -> int:
    """Two writers take turns, one call goes wrong. Returns how often a pass failed."""
    source = MemoryLog()
    failures = 0
    with patch.context() as patched:
        catalog = catalog_in(folder)
        catalog.create("orders", "orders")
        writers = [_writer(catalog, source), _writer(catalog, source)]
        doors.install(patched.setattr)
        for round_ in range(ROUNDS):
            source.send(9, round_ % 2, day=round_)
            for copier in writers[:: 1 if round_ % 2 else -1]:
                try:
                    copier.copy()
                except (LakeError, OSError):
                    failures += 1
    for copier in writers:  # the fault is over
        copier.copy()
    assert contents(catalog.load("orders", "orders")) == source.ledger()
    return failures


def _writer(catalog: LakeCatalog, source: MemoryLog) -> Materializer:
    return Materializer(catalog, source, "orders", "orders")


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("part", range(STEP))
def test_any_call_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, after: bool
) -> None:
    at, count, failed = part, part + 1, 0
    while at < count:
        doors = Doors(at, full, after=after)
        failed += story(tmp_path / str(at), doors, monkeypatch) > 0
        count = len(doors.names)
        at += STEP
    assert count >= CALLS_AT_LEAST
    assert failed >= count // STEP // 2  # a failed deletion or clean-up is not the pass's
