"""config/*.json: whole texts only, and each twice."""

import json
from pathlib import Path

import pytest
from aerobee.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from aerobee.protocol.codec.fastjson import LENIENT_BYTES_MAX, parse
from aerobee.store.base.errors import DamagedStore, DiskFull
from aerobee.store.files import disk, json_file


def test_what_is_saved_is_loaded_and_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    for text in ('{"a":1}', b'{"a":2}'):
        json_file.save(path, text)
    assert json_file.load(path, json.loads) == {"a": 2}
    assert path.with_name("topics.json.bak").read_text() == path.read_text() == '{"a":2}'
    assert sorted(found.name for found in path.parent.iterdir()) == [
        "topics.json",
        "topics.json.bak",
    ]


@pytest.mark.parametrize("damage", [None, b"", b"  \n", b"{", b"\xff\xfe"])
def test_a_file_that_can_not_be_read_falls_back_to_the_bak(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.json"
    json_file.save(path, "[1]")
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert json_file.load(path, json.loads) == [1]
    (told,) = caplog.messages
    assert str(path) in told.split(";")[0]
    assert f"its copy {path}.bak is taken instead" in told


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_is_a_damaged_one_and_not_a_missing_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DamagedStore, match=rf"a\.json \({len(text)} bytes without a text\)"):
        json_file.load(path, json.loads)


def test_no_file_at_all_is_fine(tmp_path: Path) -> None:
    assert json_file.load(tmp_path / "none.json", json.loads) is None


def test_two_files_that_can_not_be_read_are_both_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{")
    path.with_name("a.json.bak").write_text("[")
    with pytest.raises(DamagedStore, match=r"a\.json \(.*nor .*a\.json\.bak \("):
        json_file.load(path, json.loads)


def test_the_texts_of_java_with_bare_numbers_as_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{\n\t"offsetTable":{\n\t\t"T@G":{0:3,1:2\n\t\t}\n\t}\n}')
    assert json_file.load(path, parse) == {"offsetTable": {"T@G": {0: 3, 1: 2}}}


def test_a_failed_write_leaves_the_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    json_file.save(path, "[1]")

    def full(fd: int) -> None:
        raise OSError(28, "full")

    with monkeypatch.context() as patched:
        patched.setattr(disk.current, "sync", full)
        with pytest.raises(DiskFull):
            json_file.save(path, "[2]")
    assert json_file.load(path, json.loads) == [1]


def test_a_large_file_of_java_with_bare_integer_keys_is_read(tmp_path: Path) -> None:
    count = LENIENT_BYTES_MAX // 32
    pairs = b",".join(b'"topic%06d@group,{1:":{0:%d,1:2}' % (n, n) for n in range(count))
    text = b'{"dataVersion":{"counter":7},"offsetTable":{%s}}' % pairs
    assert len(text) > LENIENT_BYTES_MAX
    (tmp_path / "consumerOffset.json").write_bytes(text)
    found = json_file.load(tmp_path / "consumerOffset.json", ConsumerOffsetSerializeWrapper.decode)
    assert found is not None
    assert len(found.offset_table) == count
    assert found.offset_table["topic000123@group,{1:"] == {0: 123, 1: 2}
