"""A catalog that answers late, wrongly, twice, or with an old state: each message is a row once."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.commits import Conflict, Unconfirmed
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServiceUnavailableError,
)
from pyiceberg.table import Table
from requests.exceptions import ReadTimeout

from .memory_log import MemoryLog
from .tables import catalog_in, contents

MADE, DENIED, UNANSWERED, LATE = "made", "denied", "unanswered", "late"
MADE_DENIED, MADE_UNANSWERED = "made, denied", "made, unanswered"
FATES = (MADE, MADE, MADE, DENIED, UNANSWERED, LATE, MADE_DENIED, MADE_UNANSWERED)
ANSWERS: tuple[Exception, ...] = (
    CommitStateUnknownException("500"),
    ServiceUnavailableError("503"),
    ReadTimeout("no answer within 60 s"),
)
STALE = 4  # states back that a load may give
ROUNDS = 12


class UnsteadyCatalog:
    """Passes calls on to a catalog of pyiceberg. `fate` says what becomes of the next commit, `age`
    how many states the next load is behind; both are asked at each call."""

    def __init__(self, inner: Any) -> None:
        self.fate: Callable[[], str] = lambda: MADE
        self.age: Callable[[], int] = lambda: 0
        self.answer: Callable[[], Exception] = lambda: ANSWERS[0]
        self.late: list[Callable[[], object]] = []
        self._inner = inner
        self._states: list[Table] = []

    def load_table(self, identifier: tuple[str, ...]) -> Table:
        self._note(identifier)
        found = self._states[max(-len(self._states), -1 - self.age())]
        return Table(found.name(), found.metadata, found.metadata_location, found.io, self)  # type: ignore[arg-type]

    def commit_table(self, table: Table, *wanted: Any) -> Any:
        fate = self.fate()
        if fate == LATE:
            self.late.append(lambda: self._inner.commit_table(table, *wanted))
        if fate in (MADE, MADE_DENIED, MADE_UNANSWERED):
            found = self._inner.commit_table(table, *wanted)
            self._note(table.name())
            if fate == MADE:
                return found
        if fate in (DENIED, MADE_DENIED):
            raise CommitFailedException("another state is the current one")
        raise self.answer()

    def supports_server_side_planning(self) -> bool:
        return False

    def arrive(self) -> None:
        """Make the oldest of the late commits, if it can be made."""
        with suppress(CommitFailedException):
            self.late.pop(0)()

    def _note(self, identifier: tuple[str, ...]) -> None:
        found = self._inner.load_table(identifier)
        if not self._states or self._states[-1].metadata_location != found.metadata_location:
            self._states.append(found)


@pytest.fixture
def unsteady(catalog: LakeCatalog) -> UnsteadyCatalog:
    found = UnsteadyCatalog(catalog._catalog)
    catalog._catalog = found  # type: ignore[assignment]
    return found


def writer(catalog: LakeCatalog, source: MemoryLog) -> Materializer:
    return Materializer(catalog, source, "orders", "orders")


def fates(*wanted: str) -> Callable[[], str]:
    """These one after the other, and from then on commits are made."""
    left = list(wanted)
    return lambda: left.pop(0) if left else MADE


def rows_and_files(catalog: LakeCatalog) -> tuple[dict[tuple[str, int, int], bytes], int]:
    """What is in the table, and how many Parquet files it does not have."""
    table = catalog.load("orders", "orders")
    there = set(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    return contents(table), len(there) - len(list(table.scan().plan_files()))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_a_commit_that_is_made_and_answered_with_an_error_is_not_made_again(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog, answer: Exception
) -> None:
    source.send(20)
    copier = writer(catalog, source)
    unsteady.fate, unsteady.answer = fates(MADE_UNANSWERED), lambda: answer
    with pytest.raises(Unconfirmed):
        copier.copy()
    assert copier.copy().rows == 0
    assert rows_and_files(catalog) == (source.ledger(), 0)


@pytest.mark.parametrize("second", [DENIED, UNANSWERED])
def test_a_commit_may_be_made_after_a_later_one_was_refused(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog, second: str
) -> None:
    source.send(20)
    copier = writer(catalog, source)
    unsteady.fate = fates(LATE, second)
    with pytest.raises(Unconfirmed):
        copier.copy()
    source.send(5)
    with pytest.raises((Conflict, Unconfirmed)):
        copier.copy()
    unsteady.arrive()
    assert copier.copy().rows == 5
    assert rows_and_files(catalog) == (source.ledger(), 0)


def test_of_several_late_commits_the_first_that_arrives_is_made(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog
) -> None:
    copier = writer(catalog, source)
    unsteady.fate = fates(LATE, LATE, LATE)
    for _ in range(3):
        source.send(10)
        with pytest.raises(Unconfirmed):
            copier.copy()
    unsteady.late.append(unsteady.late.pop(0))  # the first one is on its way for longest
    for _ in range(3):
        unsteady.arrive()
    assert copier.copy().rows == 10
    assert rows_and_files(catalog) == (source.ledger(), 0)


@pytest.mark.parametrize("age", [1, 2, 3])
def test_an_old_state_leads_to_a_conflict_and_not_to_rows_twice(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog, age: int
) -> None:
    copier = writer(catalog, source)
    for _ in range(3):
        source.send(10)
        copier.copy()
    source.send(10)
    unsteady.age = lambda: age
    for _ in range(3):
        with pytest.raises(Conflict):
            copier.copy()
    unsteady.age = lambda: 0
    assert copier.copy().rows == 10
    assert rows_and_files(catalog) == (source.ledger(), 0)


def test_an_old_state_does_not_make_the_files_of_a_made_commit_go(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog
) -> None:
    copier = writer(catalog, source)
    for _ in range(2):
        source.send(10)
        copier.copy()
    source.send(10)
    unsteady.fate = fates(MADE_UNANSWERED)
    with pytest.raises(Unconfirmed):
        copier.copy()
    for age in (1, 2, 3):
        unsteady.age = lambda age=age: age  # type: ignore[misc]
        with pytest.raises(Conflict):
            copier.copy()
    unsteady.age = lambda: 0
    copier.copy()
    assert rows_and_files(catalog)[0] == source.ledger()


def test_a_commit_that_is_confirmed_and_then_lost_comes_again_with_the_next_message(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog, monkeypatch: Any
) -> None:
    """As after a catalog was restored from its backup."""
    copier = writer(catalog, source)
    source.send(10)
    monkeypatch.setattr(unsteady._inner, "commit_table", lambda table, *_: table)
    copier.copy()
    monkeypatch.undo()
    source.send(1)
    assert copier.copy().rows == 11
    assert rows_and_files(catalog)[0] == source.ledger()


def _wander(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog, draw: Random
) -> None:
    """Two writers, which are killed now and then, at a catalog that does what it likes."""
    unsteady.fate = lambda: draw.choice(FATES)
    unsteady.answer = lambda: draw.choice(ANSWERS)
    unsteady.age = lambda: draw.choice((0, 0, 0, draw.randrange(STALE)))
    writers = [writer(catalog, source), writer(catalog, source)]
    for _ in range(ROUNDS):
        source.send(draw.randrange(1, 8), draw.randrange(2))
        for number in draw.sample((0, 1), 2):
            with suppress(LakeError):
                writers[number].copy()
            if draw.random() < 0.1:
                writers[number] = writer(catalog, source)
            while unsteady.late and draw.random() < 0.4:
                draw.shuffle(unsteady.late)
                unsteady.arrive()
    unsteady.fate, unsteady.age = lambda: MADE, lambda: 0
    for each in writers:
        each.copy()
    while unsteady.late:
        unsteady.arrive()
    for each in writers:
        each.copy()


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 60), marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_whatever_the_catalog_does_each_message_is_a_row_once(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        catalog, source = catalog_in(tmp_path / str(seed)), MemoryLog()
        catalog.create("orders", "orders")
        unsteady = UnsteadyCatalog(catalog._catalog)
        catalog._catalog = unsteady  # type: ignore[assignment]
        _wander(catalog, unsteady, source, Random(seed))
        assert rows_and_files(catalog)[0] == source.ledger(), f"seed {seed}"
