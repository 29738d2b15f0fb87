"""`dump` shows what stands in the files, as Java reported it, and goes on behind damage."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from aerobee.store.base.errors import StoreError
from aerobee.store.inspect.dump import checkpoint_lines, index_lines, log_lines, queue_lines

from ..conftest import OpenStore, Unpack, put
from ..engine.test_recovery import fill
from ..test_java_stores import reopened


@pytest.mark.parametrize("name", ["main", "ext", "bcq", "crc", "lmq", "broker"])
def test_the_records_of_a_java_store_are_shown(name: str, unpack: Unpack) -> None:
    root, written = unpack(name)
    lines = list(log_lines(root))
    json.dumps(lines)
    assert not [line for line in lines if "damage" in line]
    shown = [line for line in lines if "blank" not in line]
    for line, message in zip(shown, written["messages"], strict=True):
        assert line["logOffset"] == message["physicalOffset"]
        assert (line["topic"], line["queue"]) == (message["topic"], message["queueId"])
        assert (line["offset"], line["size"]) == (message["queueOffset"], message["size"])
        assert line["properties"] == message["properties"]
        assert line["sysFlag"] == message["sysFlag"]
    assert len(lines) - len(shown) == len(list((root / "commitlog").iterdir())) - 1


def test_the_entries_of_a_queue_are_shown(unpack: Unpack) -> None:
    root, _ = unpack("main")
    units = reopened("main")["state"]["queues"]["VecTopicA@0"]
    lines = list(queue_lines(root, "VecTopicA", 0))
    assert [[line["number"], line["offset"], line["size"], line["tags"]] for line in lines] == [
        unit[:4] for unit in units["units_offset_pos_size_tagsCode_batchNum"]
    ]
    assert list(queue_lines(root, "VecTopicA", 0, start=3)) == lines[3:]
    with pytest.raises(StoreError, match="has no queue 77 of topic VecTopicA"):
        list(queue_lines(root, "VecTopicA", 77))


def test_the_entries_of_a_batch_queue_are_shown(unpack: Unpack) -> None:
    root, written = unpack("bcq")
    (topic, queue_id) = written["messages"][0]["topic"], written["messages"][0]["queueId"]
    line = next(queue_lines(root, topic, queue_id))
    assert (line["offset"], line["base"], line["number"]) == (0, 0, 1)


def test_index_and_checkpoint_are_shown(unpack: Unpack) -> None:
    root, _ = unpack("main")
    lines = list(index_lines(root))
    headers = [line for line in lines if "slots" in line]
    assert [(line["slots"], line["capacity"]) for line in headers] == [(16, 48)] * 3
    assert len(lines) - len(headers) == sum(line["count"] - 1 for line in headers) == 95
    (found,) = checkpoint_lines(root)
    assert found["log_ms"] > 0
    assert found["synced_end"] == -1
    (root / "checkpoint").unlink()
    with pytest.raises(StoreError, match="has no checkpoint"):
        next(checkpoint_lines(root))


def test_it_begins_at_the_first_record_from_a_place_on(open_store: OpenStore) -> None:
    store = open_store()
    places = [put(store, body=b"%d" % number)[0] for number in range(5)]
    store.write_staged()
    for place in (places[2] + 1, places[3]):
        assert next(log_lines(store.root, place))["logOffset"] == places[3]
    assert list(log_lines(store.root, store.log_end)) == []


def test_what_is_not_whole_is_shown_and_passed_over(open_store: OpenStore) -> None:
    store = open_store()
    places = [put(store, body=b"text" * 9)[0] for _ in range(9)]
    store.close()
    path = store.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[2] + 90] ^= 1
    data[places[5] : places[5] + 4] = b"\xff" * 4
    path.write_bytes(data)
    lines: list[dict[str, Any]] = list(islice(log_lines(store.root), 20))
    assert [line["logOffset"] for line in lines] == places
    damage = {line["logOffset"]: line["damage"] for line in lines if "damage" in line}
    assert damage[places[2]] == "the body has another crc"
    assert "says that it has -1 bytes" in damage[places[5]]
    assert len(damage) == 2


def test_a_body_that_is_no_text_is_shown_in_base64(open_store: OpenStore) -> None:
    store = open_store()
    put(store, body=b"\xff\x00")
    put(store, body=b"not packed", sys_flag=0x1)
    store.write_staged()
    first, second = log_lines(store.root)
    assert first["bodyBase64"] == "/wA="
    assert "can't be unpacked" in second["packed"]


def test_index_files_that_are_none_are_named(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 30)
    store.close()
    path: Path = next((store.root / "index").iterdir())
    path.write_bytes(path.read_bytes()[:30])
    assert {"file": path.name, "damage": "30 bytes are no index file"} in index_lines(store.root)
