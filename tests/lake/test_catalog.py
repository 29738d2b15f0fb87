"""Names and places of tables, and what a table must have to be written."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog, location_of, table_name
from aerobee.lake.errors import LakeError
from aerobee.lake.local_files import LocalFileIO
from aerobee.lake.materializer import Materializer
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, MapType, StringType

from .memory_log import MemoryLog
from .tables import catalog_in


@pytest.fixture
def catalog(tmp_path: Path) -> LakeCatalog:
    return catalog_in(tmp_path)


@pytest.fixture
def table(catalog: LakeCatalog) -> Table:
    return catalog.create("orders", "orders")


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders_2-x", "orders_2-x"),
        ("%DLQ%g", "_25DLQ_25g"),
        ("a.b", "a_2eb"),
        ("a|b", "a_7cb"),
        ("größe", "gr_f6_dfe"),
        ("x" * 127, "x" * 127),
    ],
)
def test_a_topic_has_a_table_with_a_plain_name(catalog: LakeCatalog, topic: str, name: str) -> None:
    assert table_name(topic) == name
    made = catalog.create(table_name(topic), topic)
    assert made.name() == ("rocketmq", name)
    assert made.metadata.properties["aerobee.topic"] == topic


def test_two_topics_whose_tables_would_have_one_name_are_told_apart(catalog: LakeCatalog) -> None:
    catalog.create(table_name("a.b"), "a.b")
    with pytest.raises(LakeError, match=r"a_2eb is that of topic a\.b, not of a_2eb; give another"):
        catalog.create(table_name("a_2eb"), "a_2eb")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "../x", "größe", "x" * 201])
def test_other_names_are_refused(catalog: LakeCatalog, name: str) -> None:
    with pytest.raises(LakeError, match="give up to 200 of A-Z a-z 0-9 _ -"):
        catalog.create(name, "orders")


@pytest.mark.parametrize(
    ("place", "location"),
    [
        ("s3://bucket/folder/", "s3://bucket/folder"),
        ("file:///srv/lake", "file:///srv/lake"),
        ("/srv/lake/", "file:///srv/lake"),
        ("s3:bucket", f"file://{Path.cwd()}/s3:bucket"),
        ("lake", f"file://{Path.cwd()}/lake"),
    ],
)
def test_a_place_is_a_folder_or_a_uri(place: str, location: str) -> None:
    assert location_of(place) == location


@pytest.mark.parametrize("before", ["file://", "file:", ""])
def test_a_file_of_this_machine_is_found_as_python_and_java_spell_it(
    tmp_path: Path, before: str
) -> None:
    path = tmp_path / "00000.metadata.json"
    path.write_text("{}")
    LocalFileIO().delete(f"{before}{path}")
    assert not path.exists()


def test_no_place_is_refused() -> None:
    with pytest.raises(LakeError, match="the place of the tables is empty; give a folder"):
        location_of(" ")


def test_a_namespace_may_have_parts(tmp_path: Path) -> None:
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}
    catalog = LakeCatalog(given, place=str(tmp_path / "t"), namespace="shop.raw")
    assert catalog.create("orders", "orders").location() == f"file://{tmp_path}/t/shop/raw/orders"
    catalog.create("bills", "bills")
    assert catalog.load("orders", "orders").name() == ("shop", "raw", "orders")


def test_making_a_table_again_loads_it(catalog: LakeCatalog, table: Table) -> None:
    assert catalog.create("orders", "orders").metadata.table_uuid == table.metadata.table_uuid


def test_a_table_that_is_not_there_says_what_to_do(catalog: LakeCatalog) -> None:
    with pytest.raises(
        LakeError, match=r"no table rocketmq\.orders: it was dropped, or the catalog"
    ):
        catalog.load("orders", "orders")


def test_a_catalog_that_can_not_be_opened_says_which(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"could not open the catalog aerobee .*OperationalError"):
        catalog_in(tmp_path, uri=f"sqlite:///{tmp_path}/no/folder/c.db")


def test_who_only_reads_loads_the_same_table_and_gets_the_same_refusals(
    tmp_path: Path, catalog: LakeCatalog, table: Table
) -> None:
    folder = tmp_path / "100% of it"
    folder.mkdir()
    (folder / "c.db").write_bytes((tmp_path / "catalog.db").read_bytes())
    for path in (tmp_path / "catalog.db", folder / "c.db"):
        given = {"type": "sql", "uri": f"sqlite:///{path}"}
        reader = LakeCatalog(
            given, place=str(tmp_path / "tables"), namespace="rocketmq", only_reads=True
        )
        found = reader.load("orders", "orders")
        assert (found.name(), found.metadata) == (table.name(), table.metadata)
        with pytest.raises(LakeError, match=r"no table rocketmq\.bills: it was dropped"):
            reader.load("bills", "bills")
    (tmp_path / "catalog.db").unlink()
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    gone = LakeCatalog(given, place=str(tmp_path), namespace="rocketmq", only_reads=True)
    with pytest.raises(LakeError, match=r"catalog\.db does not exist: it was moved"):
        gone.load("orders", "orders")


# --- what must be so ------------------------------------------------------------------------------


def retype(table: Table, name: str, kind: Any) -> None:
    """Another column of the same name, as a user would make it."""
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column(name, f"old_{name}")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column(name, kind)


def drop(table: Table, name: str) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column(name)


def demand(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("mine", StringType(), required=True, default_value="x")


def repartition(table: Table) -> None:
    with table.update_spec() as change:
        change.add_field("queueId", IdentityTransform(), "queue")


def unpartition(table: Table) -> None:
    with table.update_spec() as change:
        change.remove_field("timestamp_day")


def set_property(table: Table, key: str, text: str | None) -> None:
    with table.transaction() as change:
        if text is None:
            change.remove_properties(key)
        else:
            change.set_properties({key: text})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda table: set_property(table, "aerobee.topic", None), "aerobee did not make it; give"),
        (
            lambda table: set_property(table, "aerobee.topic", "bills"),
            "is that of topic bills, not",
        ),
        (
            lambda table: set_property(table, "commit.retry.num-retries", "4"),
            "has commit.retry.num-retries '4', which must be 0: .* set the property back to 0",
        ),
        (
            lambda table: set_property(table, "commit.retry.num-retries", None),
            "has commit.retry.num-retries None, which must be 0",
        ),
        (lambda table: drop(table, "tags"), "has no column tags, which every message has; roll"),
        (lambda table: drop(table, "properties"), "has no column properties"),
        (
            lambda table: retype(table, "tags", IntegerType()),
            "column tags .* is int, it must be str",
        ),
        (lambda table: retype(table, "flag", LongType()), "column flag .* is long, it must be int"),
        (demand, "requires a value in column mine, which no message has; make the column optional"),
        (repartition, "it must be by the day of the store time alone; set the partition back"),
        (unpartition, "it must be by the day of the store time alone; set the partition back"),
    ],
)
def test_a_table_that_was_spoiled_is_refused(
    catalog: LakeCatalog, table: Table, spoil: Any, says: str
) -> None:
    spoil(table)
    with pytest.raises(LakeError, match=says):
        catalog.load("orders", "orders")


def test_a_further_column_is_welcome(catalog: LakeCatalog, table: Table) -> None:
    with table.update_schema() as change:
        change.add_column("mine", StringType())
    catalog.load("orders", "orders")


def test_a_column_that_is_brought_back_has_other_ids_and_gets_its_values(
    catalog: LakeCatalog, table: Table
) -> None:
    """Catalogs may number fields in their own way, too."""
    old = table.schema().find_field("properties").field_id
    drop(table, "properties")
    with table.update_schema() as change:
        change.add_column("properties", MapType(1, StringType(), 2, StringType(), False))
    source = MemoryLog()
    source.send(3)
    Materializer(catalog, source, "orders", "orders").copy()
    found = catalog.load("orders", "orders")
    assert found.schema().find_field("properties").field_id > old
    rows = found.scan().to_arrow().to_pylist()
    assert [dict(row["properties"])["KEYS"] for row in rows] == ["k0 all", "k1 all", "k2 all"]


def test_an_error_of_the_catalog_says_which_call_failed(
    catalog: LakeCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(catalog._catalog, "load_table", away)
    with pytest.raises(
        LakeError, match=r"could not load the table rocketmq\.orders: ConnectionError: no route"
    ):
        catalog.load("orders", "orders")
