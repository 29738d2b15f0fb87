"""Table and live log as one: each message once, wherever it is at that moment."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import aerobee.lake
from aerobee.client import Message
from aerobee.client.base.security import OPEN
from aerobee.client.blocking.producers import Producer
from aerobee.lake import opening, service, settings
from aerobee.lake.bodies.fields import parse
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.dead_letters import DeadLetters
from aerobee.lake.errors import LakeError
from aerobee.lake.history import history_of
from aerobee.lake.materializer import Materializer
from aerobee.lake.settings import LakeSettings, TableSettings
from aerobee.lake.sql import connect
from aerobee.lake.union import NAMES, Tables, TopicTable
from aerobee.lake.upkeep import Upkeep
from aerobee.testing.cluster import LocalCluster

from ..spark.stored import STORE_MS
from .memory_log import MemoryLog
from .tables import catalog_in

COUNT = 40
TWO = b'{"id": "two"}'


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as found:
        yield found


@pytest.fixture
def config(cluster: LocalCluster, tmp_path: Path) -> Path:
    """The settings of a lake with topic orders."""
    path = tmp_path / "lake.yaml"
    found = LakeSettings(
        place=str(tmp_path / "tables"),
        namesrv_addr=cluster.name_server,
        catalog={"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"},
        tables=(TableSettings(topic="orders"),),
    )
    settings.write(path, found)
    opening.open_catalog(found).create("orders", "orders")
    return path


def send(cluster: LocalCluster, first: int, end: int) -> None:
    with Producer(cluster.name_server) as producer:
        for number in range(first, end):
            producer.send(Message("orders", str(number).encode(), tags=f"t{number % 3}"))


def commit(config: Path) -> None:
    """Copy what is there into the table."""
    found = settings.read(config)
    catalog, source = opening.open_catalog(found), opening.open_log(found, OPEN)
    try:
        service.materializer(catalog, source, "orders", found.tables[0]).copy()
    finally:
        source.close()


def numbers(rows: Any) -> list[int]:
    return sorted(int(body) for body in rows)


@pytest.fixture(params=["all live", "half live", "none live"])
def filled(request: pytest.FixtureRequest, cluster: LocalCluster, config: Path) -> Path:
    """COUNT messages, of which some are in the table."""
    send(cluster, 0, COUNT // 2)
    if request.param == "half live":
        commit(config)
    send(cluster, COUNT // 2, COUNT)
    if request.param == "none live":
        commit(config)
    return config


def test_each_way_of_reading_has_every_message_once(filled: Path) -> None:
    table = aerobee.lake.table("orders", config=filled)
    expected = list(range(COUNT))
    assert numbers(table.to_arrow(["value"]).column("value").to_pylist()) == expected
    assert numbers(table.to_polars()["value"]) == expected
    assert numbers(table.to_pandas()["value"]) == expected
    assert table.to_arrow().schema.names == list(NAMES)
    with Tables.of(filled) as tables:
        text = "select decode(value) from orders"
        rows = connect(tables, text).execute(text).fetchall()
    assert numbers(row[0] for row in rows) == expected


def test_a_query_may_name_a_table_twice_and_any_column_in_any_case(filled: Path) -> None:
    text = (
        "select a.TAGS, count(*) from orders a join orders b using (msgid) "
        'where b."offset" >= 0 group by 1 order by 1'
    )
    with Tables.of(filled) as tables:
        rows = connect(tables, text).execute(text).fetchall()
    assert rows == [("t0", 14), ("t1", 13), ("t2", 13)]


def test_messages_since_a_moment_are_those_that_were_stored_since(filled: Path) -> None:
    stored = aerobee.lake.table("orders", config=filled).to_arrow(["timestamp"])
    times = sorted(int(each.timestamp() * 1000) for each in stored.column(0).to_pylist())
    since = times[len(times) // 2]
    expected = sum(each >= since for each in times)
    found = aerobee.lake.table("orders", config=filled, since_ms=since)
    assert found.to_arrow(["value"]).num_rows == expected
    with Tables.of(filled, since_ms=since) as tables:
        text = "select count(*) from orders"
        assert connect(tables, text).execute(text).fetchall() == [(expected,)]


def test_an_unknown_table_is_named_with_those_that_are_there(config: Path) -> None:
    with pytest.raises(LakeError, match="no table nothing; they have orders"):
        aerobee.lake.table("nothing", config=config).to_arrow()


def test_files_with_deleted_rows_are_refused(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(filled)
    with Tables.of(filled) as tables:
        table = tables["orders"]
        scan = table.table.scan()
        task = next(iter(scan.plan_files()))
        task.delete_files.add(task.file)  # as with an engine that deletes by files
        monkeypatch.setattr(type(scan), "plan_files", lambda self: [task])
        with pytest.raises(LakeError, match="has delete files"):
            assert table.files


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., TopicTable]:
    """Reads a log behind a table that has the first COUNT messages of such a log."""
    catalog, log = catalog_in(tmp_path), MemoryLog()
    catalog.create("orders", "orders")
    log.send(COUNT)
    Materializer(catalog, log, "orders", "orders").copy()
    return lambda source, **options: TopicTable(
        catalog.load("orders", "orders"), source, "orders", **options
    )


def test_a_topic_that_was_made_again_is_not_read_behind_the_table(
    kept: Callable[..., TopicTable],
) -> None:
    other = MemoryLog(epoch=1)
    other.send(COUNT - 1)
    with pytest.raises(LakeError, match=f"ends at offset {COUNT - 1}.* up to {COUNT}: the topic"):
        kept(other).live()
    other.send(5)
    with pytest.raises(LakeError, match=f"at offset {COUNT - 1} .* is another one"):
        kept(other).live()


def test_messages_that_are_gone_behind_the_table_are_refused_unless_they_are_skipped(
    kept: Callable[..., TopicTable],
) -> None:
    log = MemoryLog()
    log.send(COUNT + 10)
    log.delete(COUNT + 3)
    with pytest.raises(LakeError, match=r"3 messages .* offsets 40 to 42, were deleted .* onGone"):
        kept(log).live()
    live = sum(batch.num_rows for batch in kept(log, skips_gone=True).live().batches())
    assert live == 7
    later = kept(log, since_ms=STORE_MS + COUNT + 5)  # what is gone was stored before
    assert sum(batch.num_rows for batch in later.live().batches()) == 5


@pytest.mark.parametrize("committed", [0, 2, 4])
def test_columns_of_json_are_those_of_the_table_and_of_live_messages(
    cluster: LocalCluster, config: Path, committed: int
) -> None:
    """The first row is written before the columns are declared; an unfit message is no row."""
    bodies = [
        b'{"id": 1}',
        b'{"id": 2, "seen": "2026-01-01T00:00:00Z"}',
        b'{"id": 1.5}',
        b'{"id": 4}',
    ]
    found = settings.read(config)
    for number, body in enumerate(bodies):
        if number == 1:
            if committed:
                commit(config)
            entry = TableSettings(topic="orders", json="id bigint, seen timestamp")
            settings.write(config, msgspec.structs.replace(found, tables=(entry,)))
        with Producer(cluster.name_server) as producer:
            producer.send(Message("orders", body))
        if number + 1 == committed:
            commit(config)
    expected = {None if committed else 1, 2, 4}
    table = aerobee.lake.table("orders", config=config)
    assert set(table.to_arrow(["id"]).column("id").to_pylist()) == expected
    assert table.to_arrow().schema.names == [*NAMES, "id", "seen"]
    with Tables.of(config) as tables:
        text = "select id, year(seen) from orders where id is null or id > 0"
        rows = connect(tables, text).execute(text).fetchall()
        text = "select * from orders"
        assert len(connect(tables, text).execute(text).fetchall()) == len(expected)
    assert {row[0] for row in rows} == expected
    assert {row[1] for row in rows} == {None, 2026}


@pytest.mark.parametrize("committed", [0, 2, 4])
@pytest.mark.parametrize("is_followed", [True, False], ids=["followed", "not followed yet"])
def test_dead_letters_are_a_table_of_their_own_with_those_that_are_live(
    cluster: LocalCluster,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    committed: int,
    is_followed: bool,
) -> None:
    """Without a commit the table of dead letters is not even made."""
    entry = TableSettings(topic="orders", json="id bigint")
    found = msgspec.structs.replace(settings.read(config), tables=(entry,))
    settings.write(config, found)
    follow = DeadLetters.follow
    for number, body in enumerate([b"one", b'{"id": 1}', TWO, b'{"id": 2}']):
        with Producer(cluster.name_server) as producer:
            producer.send(Message("orders", body))
        if number + 1 == committed:
            if not is_followed:  # as where the writer is killed between the two commits
                monkeypatch.setattr(DeadLetters, "follow", lambda *_: None)
            commit(config)
    letters = aerobee.lake.table("orders__dlq", config=config)
    rows = letters.to_arrow(["reason", "value"]).to_pylist()
    assert {row["value"] for row in rows} == {b"one", TWO}
    assert len(rows) == 2
    assert any("expected `int" in row["reason"].lower() for row in rows)
    assert letters.to_arrow().schema.names == [*NAMES, "reason"]
    with Tables.of(config) as tables:
        for text, expected in (
            ("select count(*), count(reason) from orders__dlq", [(2, 2)]),
            (
                "select decode(value) from orders__dlq where reason like '%$.id%'",
                [('{"id": "two"}',)],
            ),
            ("select count(*) from orders", [(2,)]),
        ):
            assert connect(tables, text).execute(text).fetchall() == expected
    at = letters.to_arrow(["timestamp", "value"]).sort_by("timestamp").to_pylist()[1]["timestamp"]
    since_ms = round(at.timestamp() * 1000)
    later = aerobee.lake.table("orders__dlq", config=config, since_ms=since_ms)
    assert [row["value"] for row in later.to_arrow(["value"]).to_pylist()] == [TWO]
    monkeypatch.setattr(DeadLetters, "follow", follow)
    commit(config)
    assert letters.to_arrow().num_rows == 2


def test_dead_letters_that_lack_too_many_changes_are_refused(catalog: LakeCatalog) -> None:
    source = MemoryLog()
    writer = Materializer(catalog, source, "orders", "orders", fields=parse("id bigint"))
    catalog.create("orders", "orders")
    for _ in range(2):
        source.send(1, body=b"dead")
        writer.copy()
    main = catalog.load("orders", "orders")
    letters = DeadLetters(catalog, "orders", "orders")
    table, files = letters.files(main) or (None, [])
    assert table is not None
    assert len(files) == 2
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table, files = letters.files(main) or (None, [])
    assert len(files) == 2  # the last change is in the main table's snapshot
    assert Upkeep(catalog, "orders", "orders").expire(1) == 1
    main = catalog.load("orders", "orders")
    catalog._catalog.drop_table(catalog.identifier("orders__dlq"))
    catalog.create("orders__dlq", "orders", of_dead_letters=True)
    with pytest.raises(LakeError, match=r"up to change 0, table rocketmq\.orders is at 2"):
        letters.files(main)


def test_dead_letters_that_another_engine_deleted_by_files_are_refused(
    catalog: LakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemoryLog()
    source.send(1, body=b"dead")
    Materializer(catalog, source, "orders", "orders", fields=parse("id bigint")).copy()
    main = catalog.load("orders", "orders")
    scan = catalog.load("orders__dlq", "orders", of_dead_letters=True).scan()
    [task] = scan.plan_files()
    task.delete_files.add(task.file)
    monkeypatch.setattr(type(scan), "plan_files", lambda self: [task])
    with pytest.raises(LakeError, match=r"table rocketmq\.orders__dlq has delete files"):
        DeadLetters(catalog, "orders", "orders").files(main)


def test_a_topic_named_as_the_dead_letters_of_another_keeps_its_name(
    cluster: LocalCluster, config: Path
) -> None:
    entries = (TableSettings(topic="orders", json="id bigint"), TableSettings(topic="orders__dlq"))
    settings.write(config, msgspec.structs.replace(settings.read(config), tables=entries))
    with Tables.of(config) as tables:
        assert tables.names == {"orders": "orders", "orders__dlq": "orders__dlq"}


def test_a_stream_of_spark_refuses_a_table_with_columns_of_json(
    cluster: LocalCluster, config: Path
) -> None:
    send(cluster, 0, 1)
    entry = TableSettings(topic="orders", json="id bigint")
    found = msgspec.structs.replace(settings.read(config), tables=(entry,))
    settings.write(config, found)
    with pytest.raises(LakeError, match=r"columns of JSON: its dead letters .* read the log alone"):
        history_of(config, "orders", OPEN)


def test_tables_that_differ_in_capital_letters_only_are_told_apart_or_refused(
    cluster: LocalCluster, config: Path
) -> None:
    for topic in ("orders", "ORDERS"):
        with Producer(cluster.name_server) as producer:
            producer.send(Message(topic, topic.encode()))
    entries = (TableSettings(topic="orders"), TableSettings(topic="ORDERS"))
    found = msgspec.structs.replace(settings.read(config), tables=entries)
    settings.write(config, found)
    opening.open_catalog(found).create("ORDERS", "ORDERS")
    for topic in ("orders", "ORDERS"):
        rows = aerobee.lake.table(topic, config=config).to_arrow(["value"])
        assert rows.column("value").to_pylist() == [topic.encode()]
    says = "tables orders and ORDERS differ in capital letters only.* aerobee lake add"
    with Tables.of(config) as tables:
        with pytest.raises(LakeError, match=says):
            connect(tables, 'select * from "ORDERS"')
        assert connect(tables, "select 1").execute("select 1").fetchall() == [(1,)]
