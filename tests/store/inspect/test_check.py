"""`check` is silent about clean stores, ours and Java's, and finds each kind of planted damage."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aerobee.store.base.errors import StoreError
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import checkpoint
from aerobee.store.inspect import check_index
from aerobee.store.inspect.check import LOG, Report, Sizes, check
from aerobee.store.inspect.check_config import CHECKPOINT, CONFIG
from aerobee.store.inspect.check_index import INDEX
from aerobee.store.inspect.check_queues import BATCHES, EXT, QUEUES

from ...clocks import Clock
from ..conftest import SMALL, OpenStore, Unpack, put
from ..engine.test_recovery import crash, fill

CLEAN = ["main", "killed", "ext", "bcq", "crc", "lmq", "sync", "broker"]
SLOTS, ENTRIES = SMALL.index_slots, SMALL.index_entries
ENTRIES_AT = 40 + 4 * SLOTS
SIZES = Sizes(index_slots=SLOTS, index_entries=ENTRIES)


def states(root: Path) -> dict[str, tuple[int, int]]:
    found = {str(path): path.stat() for path in root.rglob("*")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def lines(report: Report, *, damage: bool = True) -> list[str]:
    return [found.line for found in report.findings if found.is_damage is damage]


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_java_store_is_found_clean_and_left_as_it_is(name: str, unpack: Unpack) -> None:
    root, written = unpack(name)
    before = states(root)
    report = check(root)
    assert lines(report) == []
    assert not report.is_damaged
    assert report.parts[LOG].checked == len(written["messages"])
    assert report.parts[INDEX].checked >= 6
    assert report.parts[QUEUES].checked or report.parts[BATCHES].checked
    assert states(root) == before


def test_a_torn_end_of_a_java_store_is_worth_a_note(unpack: Unpack) -> None:
    root, _ = unpack("torn")
    report = check(root)
    assert lines(report) == []
    assert any("bytes that are not zero; the next start cuts" in line for line in _notes(report))
    assert any("a broker runs here, or was not stopped" in line for line in _notes(report))


def _notes(report: Report) -> list[str]:
    return lines(report, damage=False)


@pytest.fixture
def root(open_store: OpenStore, clock: Clock, tmp_path: Path) -> Path:
    """An aerobee store with all kinds of files, stopped cleanly, with nothing wrong."""
    store = open_store()
    for _ in range(12):
        clock.ms += 1_500
        fill(store, 10, start=clock.ms % 997)
    put(store, "T", 0, properties=b"TAGS\x01t\x02UNIQ_KEY\x01last\x02", tags_code=ord("t"))
    store.close()
    table = {"T0@group": {0: store.max_offset("T0", 0)}, "T@group": {0: 1}}
    config = store.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    assert check(store.root, SIZES).findings == []
    return store.root


def first(root: Path, folder: str) -> Path:
    return min(path for path in (root / folder).rglob("*") if path.is_file())


def last(root: Path, folder: str) -> Path:
    return max(path for path in (root / folder).rglob("*") if path.is_file())


def flip(path: Path, at: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def record_at(path: Path, number: int) -> int:
    """Where record `number` begins in a file of the log."""
    data, at = path.read_bytes(), 0
    for _ in range(number):
        at += struct.unpack_from(">i", data, at)[0]
    return at


def flip_in_record(byte: int, number: int = 5) -> Callable[[Path], tuple[Path, int]]:
    def plant(root: Path) -> tuple[Path, int]:
        path = first(root, "commitlog")
        at = record_at(path, number)
        flip(path, at + byte)
        return path, at

    return plant


def flip_in(folder: str, at: int, reported_at: int) -> Callable[[Path], tuple[Path, int]]:
    def plant(root: Path) -> tuple[Path, int]:
        path = first(root, folder)
        flip(path, at)
        return path, reported_at

    return plant


ENTRY_2 = ENTRIES_AT + 2 * 20


@pytest.mark.parametrize(
    ("plant", "part", "text"),
    [
        (flip_in_record(3), LOG, "is none"),
        (flip_in_record(5), LOG, "unknown magic"),
        (flip_in_record(9), LOG, "has a body with another crc"),
        (flip_in_record(35), LOG, "says that it lies at"),
        (flip_in_record(87), LOG, "is none"),
        (flip_in_record(89), LOG, "has a body with another crc"),
        (flip_in("consumequeue/T1/1", 47, 40), QUEUES, "entry 2 leads to"),
        (flip_in("consumequeue/T1/1", 51, 40), QUEUES, "entry 2 leads to"),
        (flip_in("consumequeue/T1/1", 59, 40), QUEUES, "the message with this offset is"),
        (flip_in("index", 3, ENTRY_2), INDEX, "says second"),
        (flip_in("index", 23, 16), INDEX, "says that its first message lies at"),
        (flip_in("index", 31, 24), INDEX, "says that its last message lies at"),
        (flip_in("index", 35, 32), INDEX, "slots in use"),
        (flip_in("index", 43, 40), INDEX, "slot 0 names entry"),
        (flip_in("index", ENTRY_2 + 3, ENTRY_2), INDEX, "where no such key is"),
        (flip_in("index", ENTRY_2 + 11, ENTRY_2), INDEX, "where no such key is"),
        (flip_in("index", ENTRY_2 + 15, ENTRY_2), INDEX, "entry 2 says second"),
        (flip_in("index", ENTRY_2 + 19, ENTRY_2), INDEX, "does not name the entry before it"),
    ],
)
def test_a_flipped_bit_is_found_with_file_and_place(
    root: Path, plant: Callable[[Path], tuple[Path, int]], part: str, text: str
) -> None:
    path, at = plant(root)
    report = check(root, SIZES)
    assert report.is_damaged
    found = [one for one in report.findings if one.part == part and one.is_damage]
    assert any(text in one.text and (one.path, one.at) == (path, at) for one in found), lines(
        report
    )


def test_bits_flipped_anywhere_in_a_record_but_its_free_fields_are_found(root: Path) -> None:
    path = first(root, "commitlog")
    at = record_at(path, 7)
    size = struct.unpack_from(">i", path.read_bytes(), at)[0]
    # Flags, times, hosts, counts: nothing says what they were.
    free = {*range(16, 20), *range(36, 88)}
    for byte in [*range(120), *range(size - 30, size)]:
        if byte in free:
            continue
        flip(path, at + byte)
        report = check(root, SIZES)
        flip(path, at + byte)
        if not report.is_damaged:
            # Names and values of properties that are neither tags nor keys mean nothing here.
            assert byte > 120
    assert check(root, SIZES).findings == []


def test_the_first_and_the_last_record_are_no_exception(root: Path) -> None:
    for path, number in ((first(root, "commitlog"), 0), (last(root, "commitlog"), -1)):
        data = path.read_bytes()
        at = data.rindex(b"\xda\xa3\x20\xa7") - 4 if number else 0
        flip(path, at + 88)
        assert f"{path}:{at}: the record at" in "\n".join(lines(check(root, SIZES)))
        flip(path, at + 88)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda root: first(root, "consumequeue/T0").unlink(), "lacks the entries before"),
        (lambda root: last(root, "consumequeue/T0/0").unlink(), "more messages of it, from"),
        (lambda root: first(root, "index").unlink(), "keys of messages have no entry"),
        (lambda root: last(root, "index").unlink(), "keys of messages have no entry"),
        (lambda root: cut(first(root, "commitlog"), 40_000), "has 40000 bytes instead of 65536"),
        (lambda root: cut(first(root, "consumequeue/T0"), 310), "has 310 bytes instead of 320"),
        (lambda root: cut(first(root, "index"), 900), "has 900 bytes, which"),
        (lambda root: cut(first(root, "index"), 9), "too few for an index"),
        (lambda root: cut(root / "checkpoint", 100), "has 100 bytes instead of 4096"),
        (lambda root: middle(root, "commitlog").unlink(), "what was between them is missing"),
        (lambda root: flip(root / "checkpoint", 70), "our own part begins with no mark"),
        (lambda root: flip(root / "checkpoint", 80), "our own part has another crc"),
    ],
)
def test_files_that_are_gone_cut_off_or_strange_are_found(
    root: Path, damage: Callable[[Path], object], text: str
) -> None:
    damage(root)
    report = check(root, SIZES)
    assert report.is_damaged
    assert text in "\n".join(lines(report))


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def middle(root: Path, folder: str) -> Path:
    return sorted((root / folder).iterdir())[1]


def test_a_lost_end_of_the_log_contradicts_queues_and_checkpoint(root: Path) -> None:
    path = last(root, "commitlog")
    at = path.read_bytes().rindex(b"\xda\xa3\x20\xa7") - 4
    path.write_bytes(path.read_bytes()[:at].ljust(SMALL.segment_bytes, b"\0"))
    end = int(path.name) + at
    said = "\n".join(lines(check(root, SIZES)))
    assert f"entry 0 leads to {end} (" in said
    assert f"it ends at {end}" in said
    assert f"1 entries lead behind the end of the log, {end}" in said


def test_a_hole_in_a_queue_and_an_entry_too_many_are_found(root: Path) -> None:
    path = first(root, "consumequeue/T1/1")
    data = bytearray(path.read_bytes())
    data[100:120] = bytes(20)
    path.write_bytes(data)
    assert f"{path}:100: entries 5 to 5 are none" in "\n".join(lines(check(root, SIZES)))
    data = bytearray(last(root, "consumequeue/T/0").read_bytes())
    data[20:40] = data[:20]
    last(root, "consumequeue/T/0").write_bytes(data)
    assert "entry 1 leads to" in "\n".join(lines(check(root, SIZES)))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"T@g": {"0": 2}}, "group g is at offset 2 of topic T queue 0, which ends at 1"),
        ({"T@g": {"0": -7}}, "group g is at offset -7 of topic T queue 0, which is none"),
    ],
)
def test_offsets_out_of_range_are_found(
    root: Path, table: dict[str, dict[str, int]], text: str
) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": table}))
    report = check(root, SIZES)
    assert lines(report) == [f"damage: {path}: {text}"]
    assert report.parts[CONFIG].checked == 1


def test_an_offset_of_a_topic_that_is_gone_is_a_note(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"Gone@g":{0:5}}}')  # as Java writes it
    report = check(root, SIZES)
    assert not report.is_damaged
    assert _notes(report) == [
        f"note: {path}: group g is at offset 5 of topic Gone queue 0, which ends at 0: the topic "
        "is gone"
    ]


def test_delivered_delays_behind_the_schedule_are_found(root: Path) -> None:
    path = root / "config" / "delayOffset.json"
    path.write_text('{"offsetTable":{"3":1}}')
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"SCHEDULE_TOPIC_XXXX":{}}}')
    assert "delay level 3 is at offset 1" in "\n".join(lines(check(root, SIZES)))


def test_a_config_file_that_cannot_be_read_is_found_also_when_its_bak_can(root: Path) -> None:
    path = root / "config" / "topics.json"
    path.write_text('{"topicConfigTable":{')
    said = "\n".join(lines(check(root, SIZES)))
    assert f"{path}: can't be read: " in said
    assert "the .bak is taken" not in said
    path.with_name("topics.json.bak").write_text("{}")
    assert "the .bak is taken instead" in "\n".join(lines(check(root, SIZES)))


@pytest.mark.parametrize("text", ["", '{"topicConfigTable":{'])
@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak"])
def test_a_config_file_that_is_being_written_in_place_is_a_note_beside_a_whole_one(
    root: Path, name: str, text: str
) -> None:
    for each in ("topics.json", "topics.json.bak"):
        (root / "config" / each).write_text(text if each == name else "{}")
    assert check(root, SIZES).is_damaged
    (root / "abort").touch()
    report = check(root, SIZES)
    assert not report.is_damaged
    assert str(root / "config" / name) in "\n".join(_notes(report))


def test_an_empty_config_file_of_an_open_store_counts_as_none(root: Path) -> None:
    path = root / "config" / "topics.json"
    path.touch()
    assert lines(check(root, SIZES)) == [f"damage: {path}: is empty"]
    (root / "abort").touch()
    assert f"note: {path}: is empty" in _notes(check(root, SIZES))
    path.write_text("{")
    assert check(root, SIZES).is_damaged


def test_a_damaged_extension_is_found(unpack: Unpack) -> None:
    root, _ = unpack("ext")
    path = first(root, "consumequeue_ext")
    flip(path, 9)
    report = check(root)
    assert report.parts[EXT].damaged == 1
    assert f"{path}:0: entry 0 of its queue leads here, where its tags are not" in lines(report)[0]


def test_damaged_batch_entries_are_found(unpack: Unpack) -> None:
    root, _ = unpack("bcq")
    path = first(root, "batchconsumequeue")
    flip(path, 11)
    assert "says" in lines(check(root))[0]
    flip(path, 11)
    flip(path, 7)
    said = "\n".join(lines(check(root)))
    assert f"{path}:0: leads to 1, where no record of it begins" in said
    assert "lacks entries of records from 0 to 0" in said


def test_a_damaged_crc_property_is_found(unpack: Unpack) -> None:
    root, _ = unpack("crc")
    path = first(root, "commitlog")
    flip(path, path.read_bytes().index(b"__CRC32#\x01") + 12)
    (line,) = lines(check(root))
    assert "has another crc than its property says" in line


def test_a_store_in_use_is_clean_at_every_moment(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    for number in range(30):
        clock.ms += 700
        fill(store, 7, start=number * 7)
        if number % 3 == 0:
            store.index_pending()
        if number % 5 == 0:
            plan = store.sync_plan()
            assert plan is not None
            plan.run()
            store.synced(plan)
            store.save_checkpoint()
        put(store, "Staged", number % 3, properties=b"UNIQ_KEY\x01s%d\x02" % number)
        report = check(store.root, SIZES)
        assert lines(report) == []
        assert report.parts[LOG].checked == 8 * number + 7
    assert store.query("T0", "u0", 0, 1 << 62)


def test_damage_before_the_end_of_a_store_in_use_is_damage(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store()
    fill(store, 60)
    root = crash(store, tmp_path / "copy")
    path = first(root, "commitlog")
    flip(path, record_at(path, 3) + 88)
    assert f"{path}:{record_at(path, 3)}: the record at" in lines(check(root, SIZES))[0]


def test_a_topic_deleted_and_made_again_is_no_damage(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(40):
        put(store)
    store.delete_topic("T")
    for _ in range(7):
        put(store)
    store.close()
    assert lines(check(store.root, SIZES)) == []


def test_a_log_whose_first_files_were_deleted_is_no_damage(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 300)
    store.close()
    first(store.root, "commitlog").unlink()
    assert lines(check(store.root, SIZES)) == []


def test_what_java_left_in_the_checkpoint_does_not_hide_ours(root: Path) -> None:
    # Java writes its five numbers and leaves the rest as it is.
    found = checkpoint.load(root / "checkpoint")
    data = bytearray((root / "checkpoint").read_bytes())
    data[:8] = struct.pack(">q", found.log_ms - 1)
    (root / "checkpoint").write_bytes(data)
    assert check(root, SIZES).findings == []
    data[:8] = struct.pack(">q", found.log_ms + 1)
    (root / "checkpoint").write_bytes(data)
    report = check(root, SIZES)
    assert report.parts[CHECKPOINT].damaged == 1
    assert "is safe; the last is of" in lines(report)[0]


def test_a_folder_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store: it has no folder commitlog"):
        check(tmp_path)


def test_progress_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.store.log.walk.PROGRESS_BYTES", 10_000)
    told: list[tuple[int, int, int]] = []
    report = check(root, SIZES, lambda *steps: told.append(steps))
    assert len(told) >= 2
    assert told[-1][2] <= report.parts[LOG].checked


def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    store = MessageStore(tmp_path / "store", SMALL, bytes(8), lambda: 1)
    store.open()
    store.close()
    assert check(tmp_path / "store").findings == []


def test_the_layout_of_an_index_of_few_keys_is_found_without_trying_each(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots, entries = 5_000, 4_000
    store = open_store(settings=replace(SMALL, index_slots=slots, index_entries=entries))
    fill(store, 10)
    store.close()
    tried: list[int] = []
    whole = check_index._is_layout

    def noting(*asked: Any) -> bool:
        tried.append(asked[1])
        return whole(*asked)

    monkeypatch.setattr(check_index, "_is_layout", noting)
    report = check(store.root)
    assert (lines(report), report.parts[INDEX].checked) == ([], 20)
    assert tried == [slots]  # the empty slots before it look like entries of the first message


def test_an_index_that_gets_its_first_keys_during_the_look_is_clean(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(settings=replace(SMALL, index_slots=5_000, index_entries=4_000))
    fill(store, 10)
    store.index_pending()
    path = first(store.root, INDEX)
    written = path.read_bytes()
    find = check_index.layout_of

    def find_before_they_come(*of: Any) -> tuple[int, int] | None:
        layout = find(*of)
        write_over(path, written)
        return layout

    write_over(path, written[:36] + b"\0\0\0\1" + bytes(len(written) - 40))
    monkeypatch.setattr(check_index, "layout_of", find_before_they_come)
    report = check(store.root)
    assert lines(report) == []
    assert path.read_bytes() == written


def write_over(path: Path, data: bytes) -> None:
    """Without cutting the file off, which is mapped."""
    with path.open("r+b") as file:
        file.write(data)


def test_what_is_not_the_stores_is_noted_and_no_damage(root: Path) -> None:
    for folder in ("commitlog", "consumequeue/T0/0", "index"):
        (root / folder / ".DS_Store").write_text("x")
    report = check(root, SIZES)
    assert not report.is_damaged
    strays = [one.path.parent.name for one in report.findings if "not the store's" in one.text]
    assert sorted(strays) == ["0", "commitlog", "index"]
