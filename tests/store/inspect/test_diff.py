"""`diff` of two stores: equal ones, one that is behind, one that parted, other tables."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from aerobee.protocol.codec.fastjson import parse
from aerobee.store.base.errors import StoreError
from aerobee.store.inspect.diff import GROUPS, LOG, OFFSETS, QUEUES, TOPICS, diff

GOLDEN = Path(__file__).parents[2] / "golden" / "stores"


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of the store of a whole Java broker."""
    with tarfile.open(GOLDEN / "broker.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copytree(tmp_path / "broker", tmp_path / "copy")
    return tmp_path / "broker", tmp_path / "copy"


def texts(stores: tuple[Path, Path], part: str) -> list[str]:
    return [each.text for each in diff(*stores).found if each.part == part]


def change(root: Path, file: str, key: str, entries: dict[str, object]) -> None:
    path = root / "config" / file
    text = parse(path.read_bytes()) if path.exists() else {}
    text.setdefault(key, {}).update(entries)
    path.write_text(json.dumps(text))


def test_a_copy_is_no_different(stores: tuple[Path, Path]) -> None:
    assert diff(*stores).count == 0


def test_a_log_that_is_behind_is_told_with_its_messages(stores: tuple[Path, Path]) -> None:
    path = next((stores[1] / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[260:] = bytes(len(data) - 260)  # all but the first record
    path.write_bytes(data)
    (told,) = texts(stores, LOG)
    assert f"{stores[0]} has 56 messages from 0 to " in told
    assert f"{stores[1]} has 1 messages from 0 to 260" in told


def test_the_first_byte_that_differs_is_named_with_its_record(stores: tuple[Path, Path]) -> None:
    path = next((stores[1] / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[307] ^= 1  # of the born time, which has no checksum
    path.write_bytes(data)
    (told,) = texts(stores, LOG)
    assert told.startswith("the logs part at 307, in the record at 260;")
    data[352] ^= 1  # of the body, which has one
    path.write_bytes(data)
    assert texts(stores, LOG)[-1].startswith(f"the record at 260 of {stores[1]} is not whole")


def test_a_queue_that_is_behind_or_different_is_named(stores: tuple[Path, Path]) -> None:
    folder = next(
        each for each in sorted((stores[1] / "consumequeue").glob("*/*")) if any(each.iterdir())
    )
    path = next(folder.iterdir())
    data = bytearray(path.read_bytes())
    data[12] ^= 1  # the hash of the tag of the first entry
    path.write_bytes(data)
    (told,) = texts(stores, QUEUES)
    assert told == f"queue {folder.name} of {folder.parent.name}: its entry 0 is different"
    shutil.rmtree(folder)
    (told,) = texts(stores, QUEUES)
    assert f"at 0 in {stores[1]}" in told


def test_topics_groups_and_offsets_are_compared_by_what_they_mean(
    stores: tuple[Path, Path],
) -> None:
    one, two = stores
    long = {"topicName": "a", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False}
    change(one, "topics.json", "topicConfigTable", {"a": long})
    short = {"topicName": "a", "readQueueNums": 4, "writeQueueNums": 4}
    change(two, "topics.json", "topicConfigTable", {"a": short})
    assert diff(one, two).count == 0
    change(two, "topics.json", "topicConfigTable", {"a": short | {"perm": 4}, "b": short})
    first, second = texts(stores, TOPICS)
    assert first.startswith("a is {")
    assert second == f"b is in {two} only"
    change(one, "subscriptionGroup.json", "subscriptionGroupTable", {"g": {"groupName": "g"}})
    assert texts(stores, GROUPS) == [f"g is in {one} only"]
    java = two / "config" / "consumerOffset.json"
    java.write_text(java.read_text().replace('"offsetTable":{', '"offsetTable":{"a@g":{0:5},'))
    change(one, "consumerOffset.json", "offsetTable", {"a@g": {"0": 5}})
    assert texts(stores, OFFSETS) == []
    change(two, "consumerOffset.json", "offsetTable", {"a@g": {"0": 4}})
    assert texts(stores, OFFSETS) == [f'a@g is {{"0": 5}} in {one}, {{"0": 4}} in {two}']


def test_a_folder_that_is_no_store_is_refused(stores: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store"):
        diff(stores[0], tmp_path / "missing")
