"""The key-value config on the disk: whole after every change, readable after every failure."""

from pathlib import Path

import pytest
from aerobee.namesrv import settings as module
from aerobee.namesrv.settings import Settings
from aerobee.protocol.errors import Refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file will be; its folder is not there yet."""
    return tmp_path / "store" / "kvConfig.json"


def test_each_change_is_in_the_file_and_in_its_backup(path: Path) -> None:
    settings = Settings(path)
    settings.put("N", "k", "v")
    assert path.read_text() == '{"configTable":{"N":{"k":"v"}}}'
    settings.put("N", "k2", "中")
    settings.delete("N", "k")
    backup = path.with_name("kvConfig.json.bak")
    for each in (path, backup):
        assert each.read_text("utf-8") == '{"configTable":{"N":{"k2":"中"}}}'
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, backup.name]
    assert Settings(path).namespace("N") == {"k2": "中"}


def test_a_torn_file_gives_way_to_its_backup(path: Path) -> None:
    settings = Settings(path)
    settings.put("N", "k", "first")
    for torn in ("", '{"configTable":{"N":'):
        path.write_text(torn)
        assert Settings(path).get("N", "k") == "first"
    path.unlink()
    assert Settings(path).get("N", "k") == "first"


def test_a_file_and_a_backup_that_are_both_torn_stop_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(ValueError, match=r"kvConfig.json can't be read: .*repair it or move it"):
        Settings(path)
    path.with_name(path.name + ".bak").write_text("[]")
    with pytest.raises(ValueError, match=r"kvConfig.json.bak can't be read: KVConfigFile"):
        Settings(path)


def test_a_change_that_can_not_be_stored_is_refused_and_not_made(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "kvConfig.json")
    settings.put("N", "k", "v")
    (tmp_path / "kvConfig.json.tmp").mkdir()
    with pytest.raises(Refusal, match=r"kvConfig.json can't be stored: Is a directory"):
        settings.put("N", "k", "w")
    assert settings.get("N", "k") == "v"


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    settings.put("N", "k", "v")
    assert settings.get("N", "k") == "v"
    assert list(tmp_path.iterdir()) == []


def test_limits_of_items_and_of_their_size() -> None:
    settings = Settings(items_max=1)
    settings.put("N", "k", "v")
    settings.put("N", "k", "w")
    with pytest.raises(Refusal, match="1 config items are stored, the limit is 1"):
        settings.put("M", "k", "v")
    with pytest.raises(Refusal, match=f"has 65537 bytes, the limit is {module.ITEM_BYTES_MAX}"):
        settings.put("N", "k", "v" * 65_535)
    settings.put("N", "k", "v" * 65_534)


def test_all_items_together_have_a_limit_of_bytes_which_the_refusal_names(path: Path) -> None:
    settings = Settings(path, bytes_max=20)
    settings.put("N", "k1", "12345")  # 8 bytes
    settings.put("N", "k2", "1234567890")  # 12 more
    for namespace, key, value, would in (("N", "k1", "123456", 21), ("M", "", "", 21)):
        with pytest.raises(Refusal, match=f"have 20 bytes, with .* {would}, the limit is 20; del"):
            settings.put(namespace, key, value)
    settings.put("N", "k2", "ä")
    settings.delete("N", "k1")
    settings.put("N", "k3", "1234567890123")
    for limit in (19, 20):  # as many as there are, and they are there after a start
        found = Settings(path, bytes_max=limit)
        with pytest.raises(Refusal, match="have 20 bytes"):
            found.put("N", "k3", "12345678901234")
    found.put("N", "k3", "1")


def test_a_namespace_that_was_emptied_counts_as_an_item() -> None:
    settings = Settings(items_max=2)
    for namespace in ("A", "B"):
        settings.put(namespace, "k", "v")
        settings.delete(namespace, "k")
    with pytest.raises(Refusal, match="2 config items are stored, the limit is 2"):
        settings.put("C", "k", "v")
    settings.put("A", "k", "v")


def test_a_namespace_that_was_emptied_is_still_is_still_there() -> None:
    settings = Settings()
    assert settings.namespace("N") is None
    settings.put("N", "k", "v")
    settings.delete("N", "k")
    settings.delete("M", "k")
    assert settings.namespace("N") == {}
    assert settings.namespace("M") is None
