"""The process of a task keeps its modules out of the collector's sight, and no other does."""

import gc
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from aerobee.spark import read


@pytest.fixture
def _thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(read, "_kept", [])
    yield
    gc.unfreeze()


class InTask:
    """A `TaskContext` of a process that runs a task."""

    @staticmethod
    def get() -> object:
        return object()


@pytest.mark.usefixtures("_thawed")
def test_in_a_task_what_is_there_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "TaskContext", InTask)
    before = gc.get_freeze_count()
    read.keep_modules()
    kept = gc.get_freeze_count()
    assert kept > before + 10_000
    more = [[number] for number in range(1000)]
    read.keep_modules()
    assert gc.get_freeze_count() == kept
    assert len(more) == 1000


@pytest.mark.usefixtures("_thawed")
def test_elsewhere_nothing_is_kept() -> None:
    before = gc.get_freeze_count()
    read.keep_modules()
    assert gc.get_freeze_count() == before
