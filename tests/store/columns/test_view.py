"""The store as data: what the view hands out is what was written, and nothing is changed by it."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from aerobee.lake.rows.columns import row_columns
from aerobee.lake.rows.decode import decode
from aerobee.protocol.message.record import decode_record
from aerobee.store import MessagesGone, StoreView
from aerobee.store.base.errors import ArrowMissing, DamagedStore, PolarsMissing, StoreError
from aerobee.store.engine.store import MessageStore
from aerobee.store.queues.consume_queue import ENTRY_TYPE

from ..conftest import BORN_HOST, SMALL, OpenStore, Unpack, put
from ..engine.test_recovery import fill
from ..test_java_stores import messages_of, reopened

COMPRESSED = 0x1


def rows_of(view: StoreView, topic: str, queue_id: int, **more: Any) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(
        view.batches(topic, queue_id, **more), view.schema(more.get("columns"))
    )
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def _short(ip: str) -> str:
    """Java writes IPv6 addresses in full and without brackets."""
    return f"[{IPv6Address(ip)}]" if ":" in ip and not ip.startswith("[") else ip


def states(root: Path) -> dict[str, tuple[int, int]]:
    """What would show that a file was written to."""
    found = {str(path): path.stat() for path in root.rglob("*")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.mark.parametrize("name", ["main", "killed", "torn", "ext", "crc", "lmq", "sync", "broker"])
def test_the_messages_of_a_java_store_are_rows(name: str, unpack: Unpack) -> None:
    root, written = unpack(name)
    before = states(root)
    view = StoreView(root)
    queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for message in messages_of(name, written):
        if (message["sysFlag"] & 0xC) in (0, 8):
            queues.setdefault((message["topic"], message["queueId"]), []).append(message)
    assert queues
    for (topic, queue_id), messages in queues.items():
        rows = rows_of(view, topic, queue_id)
        assert [row["log_offset"] for row in rows] == [m["physicalOffset"] for m in messages]
        for row, message in zip(rows, messages, strict=True):
            assert (row["topic"], row["queue_id"]) == (topic, queue_id)
            assert row["queue_offset"] == message["queueOffset"]
            assert row["store_time"].timestamp() * 1000 == message["storeTimestamp"]
            assert dict(row["properties"]) == message["properties"]
            assert row["tags"] == message["properties"].get("TAGS")
            keys = message["properties"].get("KEYS")
            assert row["keys"] == (None if keys is None else keys.split())
            ip, _, port = message.get("bornHost", row["born_host"]).rpartition(":")
            assert row["born_host"] == f"{_short(ip)}:{port}"
            sha1 = hashlib.sha1(row["body"]).hexdigest()
            assert (sha1 == message["storedBodySha1"]) == (not message["sysFlag"] & COMPRESSED)
    view.release()
    assert states(root) == before


def test_entries_are_what_java_reports(unpack: Unpack) -> None:
    root, _ = unpack("main")
    view = StoreView(root)
    for name, queue in reopened("main")["state"]["queues"].items():
        topic, _, queue_id = name.rpartition("@")
        found = view.queue(topic, int(queue_id))
        assert (found.first_offset, found.end_offset) == (queue["minOffset"], queue["maxOffset"])
        units = queue["units_offset_pos_size_tagsCode_batchNum"]
        entries = view.entries(topic, int(queue_id), queue["minOffset"])
        assert entries.dtype == ENTRY_TYPE
        assert [list(entry) for entry in entries.tolist()] == [unit[1:4] for unit in units]


def test_inner_batches_of_a_java_store_are_rows_of_their_own(unpack: Unpack) -> None:
    root, written = unpack("bcq")
    view = StoreView(root)
    (topic, (queue_id, *_)) = next(iter(view.topics().items()))
    records = [m for m in written["messages"] if (m["topic"], m["queueId"]) == (topic, queue_id)]
    rows = rows_of(view, topic, queue_id, columns=["queue_offset", "log_offset"])
    offsets = [row["queue_offset"] for row in rows]
    assert offsets == list(range(view.queue(topic, queue_id).end_offset))
    assert len(rows) > len(records)
    # A range that begins and ends within records has these messages and no other.
    part = rows_of(view, topic, queue_id, start=1, end=len(rows) - 1, columns=["queue_offset"])
    assert [row["queue_offset"] for row in part] == offsets[1:-1]


def test_a_store_in_use_is_read_while_it_grows(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(50):
        put(store, body=b"%d" % number, properties=b"TAGS\x01t\x02")
    store.write_staged()
    view = StoreView(store.root)
    assert [row["body"] for row in rows_of(view, "T", 0)] == [b"%d" % n for n in range(50)]
    put(store, body=b"staged")
    # Its entry is in the queue, its record is not in the log yet.
    assert view.queue("T", 0).end_offset == 50
    store.write_staged()
    assert rows_of(view, "T", 0, start=50)[0]["body"] == b"staged"
    fill(store, 200)
    with pytest.raises(StoreError, match="no queue 0 of topic T0; it has no queue of it at all"):
        view.queue("T0", 0)
    view.refresh()
    assert len(rows_of(view, "T0", 0)) == store.max_offset("T0", 0)


@pytest.mark.parametrize(("messages_max", "bytes_max"), [(7, 1 << 20), (100, 3_000), (1, 1)])
def test_pieces_are_bounded_and_without_a_gap(
    open_store: OpenStore, messages_max: int, bytes_max: int
) -> None:
    store = open_store()
    fill(store, 300)
    limits = {"messages_max": messages_max, "bytes_max": bytes_max}
    at = 3
    for chunk in StoreView(store.root).chunks("T1", 1, 3, 40, **limits):
        assert chunk.start == at
        assert 0 < chunk.end - chunk.start <= messages_max
        assert len(chunk.data) <= bytes_max or chunk.end == chunk.start + 1
        assert decode_record(chunk.data).queue_offset == at
        at = chunk.end
    assert at == 40


def test_a_piece_is_what_the_spark_source_decodes(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 60)
    columns = row_columns(full=True)
    offsets = []
    for chunk in StoreView(store.root).chunks("T2", 0, 1, messages_max=3):
        rows = decode(chunk.data, columns, broker_name="b", first=chunk.start, end=chunk.end)
        offsets += rows.column(4).to_pylist()
        assert set(rows.column(2).to_pylist()) == {"T2"}
    assert offsets == list(range(1, store.max_offset("T2", 0)))


def test_entries_in_one_file_are_no_copy(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(30):
        put(store)
    store.write_staged()
    view = StoreView(store.root)
    within = view.entries("T", 0, 2, 9)
    assert not within.flags.owndata
    across = view.entries("T", 0)
    assert len(across) == 30
    assert (across[2:9] == within).all()
    assert (np.diff(across["offset"]) == across["size"][:-1]).all()


def test_compressed_bodies_are_unpacked(open_store: OpenStore) -> None:
    import zlib

    store = open_store()
    put(store, body=zlib.compress(b"unpacked" * 50), sys_flag=COMPRESSED)
    store.write_staged()
    (row,) = rows_of(StoreView(store.root), "T", 0, columns=["body"])
    assert row == {"body": b"unpacked" * 50}


def test_what_is_gone_is_said_with_where_to_begin(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(100):
        put(store, body=bytes(2_000))
    store.close()
    (store.root / "commitlog" / f"{0:020d}").unlink()
    view = StoreView(store.root)
    first = view.queue("T", 0).first_offset
    assert 0 < first < 100
    with pytest.raises(MessagesGone, match=rf"has the offsets {first} to 100 now, 0 was") as found:
        rows_of(view, "T", 0, start=0)
    assert found.value.first == first
    assert len(rows_of(view, "T", 0)) == 100 - first


def test_a_file_that_is_deleted_after_the_first_look_is_gone_too(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(100):
        put(store, body=bytes(2_000))
    store.close()
    view = StoreView(store.root)
    (store.root / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(MessagesGone, match=r"to 100 now, 0 was asked for") as found:
        rows_of(view, "T", 0)
    assert len(rows_of(view, "T", 0, start=found.value.first)) == 100 - found.value.first


def test_a_damaged_body_is_never_handed_out(open_store: OpenStore) -> None:
    store = open_store()
    places = [put(store, body=b"%d" % number * 20)[0] for number in range(10)]
    store.close()
    path = store.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[4] + 90] ^= 1
    path.write_bytes(data)
    view = StoreView(store.root)
    with pytest.raises(DamagedStore, match=f"the body of the record at {places[4]} is damaged"):
        rows_of(view, "T", 0)
    assert len(rows_of(view, "T", 0, end=4)) == 4


def test_an_entry_that_leads_elsewhere_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(10):
        put(store)
    store.close()
    path = next((store.root / "consumequeue" / "T" / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[60:80] = data[40:60]
    path.write_bytes(data)
    with pytest.raises(DamagedStore, match="topic T queue 0"):
        rows_of(StoreView(store.root), "T", 0)


@pytest.mark.parametrize("by", [-1, 1, -200])
def test_an_entry_of_another_size_than_its_record_is_refused(
    open_store: OpenStore, by: int
) -> None:
    store = open_store()
    for _ in range(10):
        put(store, body=bytes(50))
    store.close()
    path = next((store.root / "consumequeue" / "T" / "0").iterdir())
    entries = np.fromfile(path, ENTRY_TYPE)
    entries["size"][5] += by
    entries.tofile(path)
    view = StoreView(store.root)
    assert len(rows_of(view, "T", 0, end=5)) == 5
    with pytest.raises(DamagedStore, match="topic T queue 0"):
        list(view.chunks("T", 0, end=6))


def test_a_view_of_one_topic_has_its_queues_only(open_store: OpenStore) -> None:
    store = open_store()
    put(store, body=b"in T")
    put(store, topic="Other", body=b"in Other")
    store.close()
    view = StoreView(store.root, topic="T")
    assert view.topics() == {"T": [0]}
    assert rows_of(view, "T", 0, columns=["body"]) == [{"body": b"in T"}]
    assert StoreView(store.root, topic="Nobody").topics() == {}


def test_a_folder_without_a_store_and_an_unknown_column_are_named(
    tmp_path: Path, open_store: OpenStore
) -> None:
    with pytest.raises(StoreError, match="is no store: it has no folder commitlog"):
        StoreView(tmp_path)
    store = open_store()
    put(store, born_host=BORN_HOST)
    store.write_staged()
    with pytest.raises(ValueError, match=r"no column 'key'; there are topic, queue_id, .*body"):
        next(StoreView(store.root).batches("T", 0, columns=["key"]))


def test_another_folder_of_the_log_may_be_given(tmp_path: Path) -> None:
    settings = replace(SMALL, commit_log_dir=tmp_path / "elsewhere")
    store = MessageStore(tmp_path / "store", settings, bytes(8), lambda: 1)
    store.open()
    put(store, body=b"there")
    store.close()
    view = StoreView(tmp_path / "store", tmp_path / "elsewhere")
    assert rows_of(view, "T", 0, columns=["body"]) == [{"body": b"there"}]


def test_neither_the_store_nor_its_view_need_arrow_before_rows_are_asked_for() -> None:
    program = (
        "import sys, aerobee.store, aerobee.store.engine.store, aerobee.broker.server; "
        "assert 'pyarrow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_arrow_one_sentence_says_what_brings_it(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = StoreView(open_store().root)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for ask in (
        lambda: next(view.batches("T", 0)),
        lambda: next(view.chunks("T", 0)),
        lambda: view.schema(),
    ):
        with pytest.raises(
            ArrowMissing, match=r"not installed; run pip install 'aerobee\[spark\]'$"
        ):
            ask()


def test_a_whole_topic_is_its_queues_one_after_the_other(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 300)
    store.write_staged()
    view = StoreView(store.root)
    queues = view.topics()["T1"]
    assert len(queues) > 1
    columns = ["queue_id", "queue_offset"]
    found = [row for batch in view.batches("T1", columns=columns) for row in batch.to_pylist()]
    assert found == [
        {"queue_id": queue_id, "queue_offset": offset}
        for queue_id in queues
        for offset in range(view.queue("T1", queue_id).end_offset)
    ]
    with pytest.raises(StoreError, match=r"has no queue of topic other; topics\(\) lists them"):
        next(view.batches("other"))


def test_a_topic_is_a_frame_of_polars(open_store: OpenStore) -> None:
    polars = pytest.importorskip("polars")
    store = open_store()
    fill(store, 60)
    store.write_staged()
    view = StoreView(store.root)
    frame = view.to_polars("T1")
    assert isinstance(frame, polars.DataFrame)
    assert frame.columns == view.schema().names
    rows = [row for batch in view.batches("T1") for row in batch.to_pylist()]
    assert len(rows) > 2
    assert frame["body"].to_list() == [row["body"] for row in rows]
    assert frame["store_time"].to_list() == [row["store_time"] for row in rows]
    part = view.to_polars("T1", 1, 1, 2, columns=["queue_offset"])
    assert part.to_dicts() == [{"queue_offset": 1}]
    assert view.to_polars("T1", 1, 1, 1).shape == (0, len(view.schema()))


def test_without_polars_that_is_told(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.columns.view.find_spec", lambda name: None)
    with pytest.raises(PolarsMissing, match="needs polars, which is not installed"):
        StoreView(open_store().root).to_polars("T")
