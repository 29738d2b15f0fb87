"""lake.yaml: what it may say, what is refused, and how it is replaced."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.errors import LakeError
from aerobee.lake.settings import (
    LakeSettings,
    SettingsFile,
    TableSettings,
    catalog_of,
    read,
    write,
)

FULL = """\
place: s3://bucket/lake
namesrvAddr: ns1:9876;ns2:9876
catalog: {type: rest, uri: "https://catalog.example", token: abc}
catalogName: shop
namespace: shop.raw
stores: {broker-a: /srv/a}
workers: 4
group: shop-lake
httpPort: 8083
httpBindAddress: 0.0.0.0
httpToken: file:/etc/token
consoleUrl: http://console:8082/
tables:
- {topic: orders, table: o, commitSeconds: 1, commitMib: 2, start: latest, onGone: skip}
- {pattern: "bills-.*", start: 1700000000000}
"""


def test_a_file_has_all_settings_and_stays_the_same_when_written(tmp_path: Path) -> None:
    path, again = tmp_path / "lake.yaml", tmp_path / "again.yaml"
    path.write_text(FULL)
    found = read(path)
    assert (found.namespace, found.workers, found.stores) == ("shop.raw", 4, {"broker-a": "/srv/a"})
    assert found.group == "shop-lake"
    orders, bills = found.tables
    assert (orders.commit_seconds, orders.commit_mib) == (1, 2)
    assert (orders.start, orders.on_gone, orders.table) == ("latest", "skip", "o")
    assert (bills.pattern, bills.start) == ("bills-.*", 1_700_000_000_000)
    write(again, found)
    assert read(again) == found


def test_defaults_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "lake.yaml", LakeSettings(place="t", tables=(TableSettings(topic="a"),)))
    assert (tmp_path / "lake.yaml").read_text() == "place: t\ntables:\n- topic: a\n"


def test_a_file_is_for_its_owner_alone_and_is_replaced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text("place: old\n")
    path.chmod(0o644)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LakeError, match=r"lake\.yaml can't be written: .*No space left"):
            write(path, LakeSettings(place="new"))
    assert read(path).place == "old"
    write(path, LakeSettings(place="new"))
    assert read(path).place == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]  # nothing is left beside it


def test_a_changed_file_counts_once_it_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    write(path, LakeSettings(place="first"))
    file = SettingsFile(path)
    assert file.read().place == "first"
    assert file.changed() is None
    path.write_text("")  # an editor begins to write
    assert file.changed() is None
    path.write_text("place: second\n")
    assert file.changed() is None
    found = file.changed()
    assert found is not None
    assert found.place == "second"
    path.write_text("tables: [")
    assert file.changed() is None
    with pytest.raises(LakeError, match="can't be read"):
        file.changed()
    assert file.changed() is None  # each change is told once


def test_a_folder_is_no_file_of_settings(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"can't be read: .*Is a directory"):
        read(tmp_path)


def test_a_topic_follows_its_own_entry_else_the_first_pattern_that_fits_it_whole() -> None:
    first, second = TableSettings(pattern="a.*"), TableSettings(pattern="ab")
    own = TableSettings(topic="abc")
    settings = LakeSettings(place="t", tables=(first, second, own))
    assert settings.entry_of("abc") is own
    assert settings.entry_of("ab") is first
    assert settings.entry_of("cab") is None


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("sqlite:///a/b.db", {"type": "sql", "uri": "sqlite:///a/b.db"}),
        ("postgresql+psycopg2://u@h/d", {"type": "sql", "uri": "postgresql+psycopg2://u@h/d"}),
        ("https://c.example/v1", {"type": "rest", "uri": "https://c.example/v1"}),
        ("thrift://h:9083", {"type": "hive", "uri": "thrift://h:9083"}),
        ("glue", {"type": "glue"}),
    ],
)
def test_the_address_of_a_catalog_tells_its_kind(text: str, properties: dict[str, str]) -> None:
    assert catalog_of(text) == properties


@pytest.mark.parametrize("text", ["", "sqlite", "sqlite:x", "s3://bucket", "c.example"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(LakeError, match=f"the catalog is '{text}'; give sqlite:///PATH"):
        catalog_of(text)
