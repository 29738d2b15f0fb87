"""Stores in a folder of their own, with small files and a clock that the test moves."""

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore

from ..clocks import Clock

STORES = Path(__file__).parents[1] / "golden" / "stores"
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BORN_HOST = bytes([10, 1, 2, 3, 0, 0, 0xD4, 0x31])
SMALL = StoreSettings(
    segment_bytes=64 << 10, queue_file_bytes=320, index_slots=16, index_entries=48
)


OpenStore = Callable[..., MessageStore]
Unpack = Callable[[str], tuple[Path, dict[str, Any]]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(tmp_path: Path, clock: Clock) -> Iterator[OpenStore]:
    """`open_store(root=…, settings=…)`: an opened store, closed after the test."""
    opened: list[MessageStore] = []

    def opens(
        root: Path = tmp_path / "store", settings: StoreSettings = SMALL, host: bytes = HOST
    ) -> MessageStore:
        store = MessageStore(root, settings, host, clock)
        store.open()
        opened.append(store)
        return store

    yield opens
    for store in opened:
        store.close()


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """`unpack(name)`: a store that the real Java classes wrote, and the JSON that belongs to it."""

    def unpacks(name: str) -> tuple[Path, dict[str, Any]]:
        with tarfile.open(STORES / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        path = STORES / f"{name}.json"
        return tmp_path / name, json.loads(path.read_text()) if path.exists() else {}

    return unpacks


def java_settings(config: dict[str, Any], **more: Any) -> StoreSettings:
    """The settings that a Java store was written with."""
    return StoreSettings(
        segment_bytes=config["mappedFileSizeCommitLog"],
        queue_file_bytes=config["mappedFileSizeConsumeQueue"],
        batch_queue_file_bytes=config.get("mapperFileSizeBatchConsumeQueue", 736),
        queue_ext_file_bytes=config.get("mappedFileSizeConsumeQueueExt", 1024),
        index_slots=config["maxHashSlotNum"],
        index_entries=config["maxIndexNum"],
        **more,
    )


def put(
    store: MessageStore,
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"body",
    properties: bytes = b"",
    **more: Any,
) -> tuple[int, int, int]:
    """A message with everything that a test doesn't care about filled in."""
    values: dict[str, Any] = {
        "flag": 0,
        "sys_flag": 0,
        "born_ms": 1_600_000_000_000,
        "born_host": BORN_HOST,
        "tags_code": 0,
    } | more
    return store.put(Message((topic, queue_id), body=body, properties=properties, **values))
