"""The queues of a store by topic: names, kinds, deletion, many of them."""

import os
from pathlib import Path

import pytest
from aerobee.store.base.errors import DamagedStore, StoreError
from aerobee.store.queues import queues as queues_module
from aerobee.store.queues.queues import Queues

from ..conftest import SMALL


@pytest.fixture
def queues(tmp_path: Path) -> Queues:
    return Queues(tmp_path, SMALL)


def test_queues_are_found_again_by_their_folders(queues: Queues, tmp_path: Path) -> None:
    queues.make("%RETRY%g", 3).append(0, 100, 0)
    queues.make_batch("B", 0).append(0, 100, 0, 1, 0, 4)
    (tmp_path / "consumequeue" / "T" / "not-a-queue").mkdir(parents=True)
    (tmp_path / "consumequeue" / "stray").write_text("")
    again = Queues(tmp_path, SMALL)
    again.load(is_clean=True)
    assert {(queue.topic, queue.queue_id, queue.next) for queue in again.all()} == {
        ("%RETRY%g", 3, 1),
        ("B", 0, 4),
    }
    assert again.find("B", 0) is again.batch["B", 0]
    assert again.find("B", 1) is None


def test_a_topic_of_two_kinds_is_damage(queues: Queues, tmp_path: Path) -> None:
    queues.make("T", 0).append(0, 100, 0)
    queues.make_batch("T", 0).append(0, 100, 0, 1, 0, 4)
    with pytest.raises(DamagedStore, match="has both"):
        Queues(tmp_path, SMALL).load(is_clean=True)


@pytest.mark.parametrize("name", ["..", "a/b", "", "a" * 256, "ä", "a b"])
def test_a_name_that_could_lead_elsewhere_makes_no_queue(
    queues: Queues, tmp_path: Path, name: str
) -> None:
    for make in (queues.make, queues.make_batch):
        with pytest.raises(StoreError, match="can't be stored"):
            make(name, 0)
    assert list(tmp_path.iterdir()) == []


def test_there_is_a_limit_to_the_number_of_queues(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "QUEUES_MAX", 3)
    for queue_id in range(3):
        queues.make("T", queue_id)
    with pytest.raises(StoreError, match="no more fit; delete topics"):
        queues.make("T", 3)
    assert queues.make("T", 2) is queues.simple["T", 2]


def test_deleting_a_topic_leaves_those_with_like_names(queues: Queues, tmp_path: Path) -> None:
    for topic in ("T", "T1", "%RETRY%T"):
        queues.make(topic, 0).append(0, 100, 0)
    queues.delete_topic("T")
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == [
        "%RETRY%T",
        "T1",
    ]
    assert sorted(queue.topic for queue in queues.all()) == ["%RETRY%T", "T1"]


@pytest.mark.parametrize(("queues_max", "files_max"), [(10, 1_024), (8_000, 76)])
def test_idle_queues_give_their_file_numbers_back_when_there_are_many(
    queues_max: int, files_max: int, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "QUEUES_MAPPED_MAX", queues_max)
    monkeypatch.setattr(queues_module, "open_files_max", lambda: files_max)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        queue = queues.make(f"T{number}", 0)
        queue.append(0, 100, 0)
        queue.synced = 1 if number else 0
    assert len(os.listdir("/proc/self/fd")) - before == 20
    queues.trim()
    assert len(os.listdir("/proc/self/fd")) - before == 1
    for queue in queues.simple.values():
        assert queue.append(100, 100, 0) == 1
        assert queue.entries(0, 9, 2) == [(0, 100, 0), (100, 100, 0)]
