"""A catalog or a file system that fails at any call: no row is missing after it, none is twice."""

import errno
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer

from .doors import Doors
from .memory_log import MemoryLog
from .tables import catalog_in, contents

ROUNDS = 2  # the first commit, and one behind it
ROUNDS_LONG = 3
CALLS_AT_LEAST = 40
STEP = 7  # the parts that all calls are tried in, one test each
FILE_CALLS = ("new_output", "create", "write", "close")
FILES = (".parquet", ".avro", "snap-.avro", ".json")
KINDS = {
    "load_table",
    "commit_table",
    "new_input .json",
    "new_input snap-.avro",
    *(f"{call} {kind}" for call in FILE_CALLS for kind in FILES),
}


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _writer(catalog: LakeCatalog, source: MemoryLog) -> Materializer:
    return Materializer(catalog, source, "orders", "orders")


def _send(source: MemoryLog, round_: int) -> None:
    source.send(9, round_ % 2, day=round_)


def _assert_exact(catalog: LakeCatalog, source: MemoryLog) -> None:
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def story(
    folder: Path,
    doors: Doors,
    patch: pytest.MonkeyPatch,
    rounds: int,
    *,
    writer: Callable[[LakeCatalog, MemoryLog], Materializer] = _writer,
    send: Callable[[MemoryLog, int], None] = _send,
    assert_exact: Callable[[LakeCatalog, MemoryLog], None] = _assert_exact,
) -> list[int]:
    """Two writers take turns, one call goes wrong, and what they wrote is exact after it.

    Returns for each pass how many calls were made before it; a failed one is -1.
    """
    source = MemoryLog()
    passes = []
    with patch.context() as patched:
        catalog = catalog_in(folder)
        catalog.create("orders", "orders")
        writers = [writer(catalog, source), writer(catalog, source)]
        doors.install(patched.setattr)
        for round_ in range(rounds):
            send(source, round_)
            for copier in writers[:: 1 if round_ % 2 else -1]:
                passes.append(len(doors.names))
                try:
                    copier.copy()
                except (LakeError, OSError):
                    passes[-1] = -1
    for copier in writers:  # the fault is over
        copier.copy()
    assert_exact(catalog, source)
    return passes


def first_and_last(names: list[str], passes: list[int]) -> list[tuple[str, int]]:
    """The first and the last call of each name, in the first commit, the later ones, and the passes
    without news: each call as its name and its number among those of the name."""
    found: dict[tuple[int, str], list[int]] = {}
    for number, (begin, end) in enumerate(pairwise([*passes, len(names)])):
        phase = 1 if number % 2 else min(number, 2)
        for at in range(begin, end):
            found.setdefault((phase, names[at]), []).append(names[:at].count(names[at]))
    return sorted(
        {(name, at) for (_, name), calls in found.items() for at in (min(calls), max(calls))}
    )


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.usefixtures("files_stay_open")
def test_each_kind_of_call_may_fail_in_each_phase_of_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    quiet = Doors(-1, full, after=after)
    passes = story(tmp_path / "without", quiet, monkeypatch, ROUNDS)
    calls = first_and_last(quiet.names, passes)
    assert {name for name, _ in calls} >= KINDS
    failed = 0
    for number, (name, at) in enumerate(calls):
        doors = Doors(at, full, after=after, name=name)
        failed += -1 in story(tmp_path / str(number), doors, monkeypatch, ROUNDS)
        assert doors.names.count(name) > at
    assert failed == len(calls)


@pytest.mark.soak
@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("part", range(STEP))
@pytest.mark.usefixtures("files_stay_open")
def test_any_call_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, after: bool
) -> None:
    at, count, failed = part, part + 1, 0
    while at < count:
        doors = Doors(at, full, after=after)
        failed += -1 in story(tmp_path / str(at), doors, monkeypatch, ROUNDS_LONG)
        count = len(doors.names)
        at += STEP
    assert count >= CALLS_AT_LEAST
    assert failed >= count // STEP // 2  # a failed deletion or clean-up is not the pass's
