"""Tables with columns of JSON: what fits is a row, the rest a dead letter; each message once."""

import datetime
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyiceberg")


import pyarrow as pa
import pyarrow.compute as pc
from aerobee.lake import dead_letters
from aerobee.lake.bodies.decoder import BodyDecoder
from aerobee.lake.bodies.fields import Field, parse
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.commits import Conflict
from aerobee.lake.dead_letters import DeadLetters, followed
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import progress_of
from aerobee.lake.upkeep import Upkeep
from aerobee.lake.verify import verify
from pyiceberg.table import Table

from ..spark.stored import STORE_MS
from .doors import Doors
from .memory_log import DAY_MS, MemoryLog
from .tables import catalog_in, contents, rewrite
from .test_faults import ROUNDS, first_and_last, full, story

DDL = "id bigint, name string"
BAD = b'{"id": "x"}'
CALLS_AT_LEAST = 40
RETRY_STEP = 8  # of the calls that are tried


def writer(catalog: LakeCatalog, source: MemoryLog, ddl: str = DDL) -> Materializer:
    return Materializer(catalog, source, "orders", "orders", fields=parse(ddl))


def send(source: MemoryLog, count: int, *, queue: int = 0, day: int = 0, bad: int = 2) -> None:
    """Send messages of which each one of `bad` does not fit."""
    for number in range(count):
        good = json.dumps({"id": number, "name": f"n{number}"}).encode()
        source.send(1, queue, day=day, body=BAD if number % bad == 0 else good)


def tables(catalog: LakeCatalog) -> tuple[Table, Table]:
    """The table, and its dead letters when they have followed."""
    main = catalog.load("orders", "orders")
    letters = catalog.load("orders__dlq", "orders", of_dead_letters=True)
    return main, letters


def assert_exact(catalog: LakeCatalog, source: MemoryLog, ddl: str = DDL) -> None:
    """Each message of the log is in one of both tables, once, and where it belongs."""
    main, letters = tables(catalog)
    rows, dead = contents(main), contents(letters)
    assert not rows.keys() & dead.keys()
    assert rows | dead == source.ledger()
    assert BAD not in rows.values()
    progress = progress_of(main.metadata, "orders")
    assert (followed(letters), len(dead)) == (progress.letters, progress.dead)
    found = verify(
        main,
        source,
        "orders",
        fields=parse(ddl),
        letters=DeadLetters(catalog, "orders", "orders"),
    )
    assert all(each.is_clean for each in found)


def assert_no_orphans(catalog: LakeCatalog, folder: Path) -> None:
    """Each Parquet file is in one of both tables."""
    files = {task.file.file_path for each in tables(catalog) for task in each.scan().plan_files()}
    assert {f"file://{path}" for path in folder.rglob("*.parquet")} == files


def test_what_fits_is_a_row_with_columns_and_the_rest_a_dead_letter_with_its_reason(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(1, body=b'{"id": 7, "name": "a", "more": [1]}')
    source.send(1, body=BAD)
    done = writer(catalog, source).copy()
    assert (done.rows, done.dead) == (2, 1)
    main, letters = tables(catalog)
    (row,) = main.scan(selected_fields=("id", "name", "offset")).to_arrow().to_pylist()
    assert row == {"id": 7, "name": "a", "offset": 0}
    (dead,) = letters.scan().to_arrow().to_pylist()
    assert dead["reason"] == "Expected `int`, got `str` - at `$.id`"
    assert (dead["brokerName"], dead["queueId"], dead["offset"]) == ("broker-a", 0, 1)
    assert dead["value"] == BAD
    assert_exact(catalog, source)


def test_passes_of_two_writers_have_each_message_once(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    writers = [writer(catalog, source), writer(catalog, source)]
    for round_ in range(4):
        send(source, 5, queue=round_ % 2, day=round_)
        writers[round_ % 2].copy()
        assert_exact(catalog, source)


def test_upkeep_after_a_writer_was_killed_between_two_commits_keeps_the_dead_letters(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(source, 6)
    writer(catalog, source).copy()
    send(source, 6)
    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "_prepared", lambda *_: full())
        with pytest.raises(OSError, match="No space left"):
            writer(catalog, source).copy()
    main, letters = tables(catalog)
    assert followed(letters) < progress_of(main.metadata, "orders").letters
    upkeep = Upkeep(catalog, "orders", "orders")
    later = STORE_MS + 30 * DAY_MS
    assert upkeep.compact(now_ms=later).after == 1
    upkeep.expire(keep=1)
    upkeep.sweep(now_ms=later)
    upkeep.sweep(now_ms=later + DAY_MS)
    assert_exact(catalog, source)
    send(source, 6)
    writer(catalog, source).copy()
    assert_exact(catalog, source)


def test_a_writer_that_lost_the_race_leaves_no_files(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    send(source, 5)
    second = writer(catalog, source)
    rows = source.rows

    def overtaken(*given: object) -> object:
        monkeypatch.setattr(source, "rows", rows)
        second.copy()
        return rows(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(source, "rows", overtaken)
    first = writer(catalog, source)
    with pytest.raises(Conflict):
        first.copy()
    send(source, 2)
    first.copy()
    assert_exact(catalog, source)
    assert_no_orphans(catalog, tmp_path)


def test_a_table_without_dead_letters_makes_no_table_for_them(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(3, body=b"{}")
    writer(catalog, source).copy()
    with pytest.raises(LakeError, match=r"has no table rocketmq\.orders__dlq"):
        tables(catalog)


def _story(folder: Path, doors: Doors, patch: pytest.MonkeyPatch) -> list[int]:
    return story(
        folder,
        doors,
        patch,
        ROUNDS,
        writer=writer,
        send=lambda source, round_: send(source, 6, queue=round_ % 2, day=round_),
        assert_exact=assert_exact,
    )


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.usefixtures("files_stay_open")
def test_each_kind_of_call_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    quiet = Doors(-1, full, after=after)
    passes = _story(tmp_path / "without", quiet, monkeypatch)
    calls = first_and_last(quiet.names, passes)
    # The other half with the other effect: test_faults has all of them without dead letters.
    for number, (name, at) in enumerate(calls[after::2]):
        doors = Doors(at, full, after=after, name=name)
        _story(tmp_path / str(number), doors, monkeypatch)
        assert doors.names.count(name) > at


@pytest.mark.parametrize("fields", [parse(DDL), ()], ids=["json", "raw"])
def test_dead_letters_that_were_not_followed_are_followed_by_the_next_writer(
    catalog: LakeCatalog,
    source: MemoryLog,
    monkeypatch: pytest.MonkeyPatch,
    fields: tuple[Field, ...],
) -> None:
    send(source, 4)

    def killed(*_: object) -> None:
        raise LakeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(dead_letters, "_prepared", killed)
        with pytest.raises(LakeError, match="killed"):
            writer(catalog, source).copy()
    main, letters = tables(catalog)
    assert (progress_of(main.metadata, "orders").letters, followed(letters)) == (1, 0)
    Materializer(catalog, source, "orders", "orders", fields=fields).copy()
    assert_exact(catalog, source)


def test_columns_are_added_and_older_rows_have_null(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    Materializer(catalog, source, "orders", "orders").copy()
    send(source, 4)
    writer(catalog, source).copy()
    more = f"{DDL}, items array<struct<sku:string,n:int>>"
    source.send(1, body=b'{"id": 1, "items": [{"sku": "s", "n": 2}, null]}')
    writer(catalog, source, more).copy()
    main, _ = tables(catalog)
    rows = main.scan().to_arrow().sort_by("offset").to_pylist()
    assert [row["items"] for row in rows] == [None, None, [{"sku": "s", "n": 2}, None]]
    assert_exact(catalog, source, more)


def test_a_column_named_as_the_partition_is_refused_and_one_named_day_is_not(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(1, body=b'{"day": "2026-02-28"}')
    table = catalog.create("orders", "orders")
    [partition] = [each.name for each in table.spec().fields]
    with pytest.raises(LakeError, match=f"names {partition}, which is the name of table rocketmq"):
        writer(catalog, source, f"{partition} date").copy()
    writer(catalog, source, "day date").copy()
    found = catalog.load("orders", "orders").scan().to_arrow()
    assert found.column("day").to_pylist() == [datetime.date(2026, 2, 28)]


def test_a_type_that_contradicts_the_column_is_refused_with_both_types(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    send(source, 2)
    writer(catalog, source).copy()
    for ddl, says in (
        ("id string", "the schema says id string, column id of table rocketmq.orders is bigint"),
        ("ID bigint", "the schema says ID bigint, column id .* is bigint"),
    ):
        with pytest.raises(LakeError, match=f"{says}.*: columns are added, never changed"):
            writer(catalog, source, ddl).copy()
    assert_exact(catalog, source)


def test_dead_letters_that_fit_a_new_schema_become_rows(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    for round_ in range(3):
        send(source, 6, day=round_)
        source.send(1, body=b"no JSON")
        writer(catalog, source).copy()
    fixed = writer(catalog, source, "name string")
    done = fixed.retry(2)
    assert done is not None
    assert (done.fit, done.stay.total(), len(done.read)) == (6, 2, 2)
    skip = {*done.read, *done.written}
    again = fixed.retry(2, skip)
    assert again is not None
    assert (again.fit, again.stay.total()) == (3, 1)
    assert fixed.retry(2, skip | {*again.read, *again.written}) is None
    main, letters = tables(catalog)
    assert list(contents(letters).values()) == [b"no JSON"] * 3
    assert contents(main) | contents(letters) == source.ledger()
    assert progress_of(main.metadata, "orders").dead == 3


def test_a_retry_in_which_nothing_fits_leaves_no_commit_and_no_file(
    catalog: LakeCatalog, source: MemoryLog, tmp_path: Path
) -> None:
    send(source, 4)
    writer(catalog, source).copy()
    before = catalog.load("orders", "orders").metadata_location
    done = writer(catalog, source).retry(9)
    assert done is not None
    assert (done.fit, done.stay) == (0, {"Expected `int`, got `str` - at `$.id`": 2})
    assert catalog.load("orders", "orders").metadata_location == before
    assert_exact(catalog, source)
    assert_no_orphans(catalog, tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.usefixtures("files_stay_open")
def test_calls_of_a_retry_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    names = retried(tmp_path / "without", Doors(-1, full, after=after), monkeypatch)
    assert len(names) > CALLS_AT_LEAST
    for at in range(after, len(names), RETRY_STEP):
        doors = Doors(at, full, after=after)
        assert len(retried(tmp_path / str(at), doors, monkeypatch)) > at


def retried(folder: Path, doors: Doors, patch: pytest.MonkeyPatch) -> list[str]:
    """Dead letters are read again, one call goes wrong, and after another time all are rows.

    Returns the names of the calls.
    """
    source, catalog = MemoryLog(), catalog_in(folder)
    catalog.create("orders", "orders")
    for day in (0, 1):
        send(source, 4, day=day)
        writer(catalog, source).copy()
    with patch.context() as patched:
        doors.install(patched.setattr)
        with suppress(LakeError, OSError):
            writer(catalog, source, "name string").retry(9)
    writer(catalog, source, "name string").retry(9)
    main, letters = tables(catalog)
    assert contents(main) == source.ledger()
    assert contents(letters) == {}
    progress = progress_of(main.metadata, "orders")
    assert (progress.letters, progress.dead, followed(letters)) == (3, 0, 3)
    return doors.names


def test_a_table_that_was_rolled_back_beside_its_dead_letters_is_refused(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    for _ in range(2):
        send(source, 2)
        writer(catalog, source).copy()
    main, _ = tables(catalog)
    first = main.snapshots()[0].snapshot_id
    main.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(LakeError, match=r"dead letters up to change 2, .* is at 1: one of them"):
        writer(catalog, source).copy()


def test_a_burst_of_dead_letters_is_told_once_with_place_and_reason(
    catalog: LakeCatalog, source: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aerobee.lake")
    copier = writer(catalog, source)
    for _ in range(3):
        source.send(1, body=BAD)
        copier.copy()
    (said,) = caplog.messages
    assert "1 of 1 bodies don't fit table rocketmq.orders and go to orders__dlq; first " in said
    assert "broker-a:0 offset 0: Expected `int`, got `str` - at `$.id`" in said


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.slice(1),
        lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
        lambda rows: rows.set_column(
            rows.schema.get_field_index("offset"), "offset", pc.add(rows["offset"], 50)
        ),
    ],
    ids=["missing", "twice", "moved"],
)
def test_verify_finds_what_is_wrong_in_a_table_with_dead_letters(
    catalog: LakeCatalog, source: MemoryLog, change: Callable[[pa.Table], pa.Table]
) -> None:
    send(source, 6)
    writer(catalog, source).copy()
    main, _ = tables(catalog)
    rewrite(main, change, BodyDecoder(parse(DDL)).schema)
    found = verify(
        catalog.load("orders", "orders"),
        source,
        "orders",
        fields=parse(DDL),
        letters=DeadLetters(catalog, "orders", "orders"),
    )
    assert not all(each.is_clean for each in found)


@pytest.mark.parametrize(("value", "different"), [(99, 3), (None, 0)])
def test_verify_compares_columns_with_the_body_but_null(
    catalog: LakeCatalog, source: MemoryLog, value: int | None, different: int
) -> None:
    send(source, 6)
    writer(catalog, source).copy()
    main, _ = tables(catalog)

    def change(rows: pa.Table) -> pa.Table:
        number = rows.schema.get_field_index("id")
        kind = rows.schema.field(number)
        return rows.set_column(number, kind, pa.array([value] * len(rows), kind.type))

    rewrite(main, change, BodyDecoder(parse(DDL)).schema)
    main = catalog.load("orders", "orders")
    letters = DeadLetters(catalog, "orders", "orders")
    (found,) = verify(main, source, "orders", fields=parse(DDL), letters=letters)
    assert (found.different, found.first_bad) == (different, (1, 3, 5)[:different])
    assert (found.missing, found.twice, found.compared) == (0, 0, 6)


def test_verify_accepts_rows_of_before_the_columns_whose_bodies_do_not_fit(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(3, body=BAD)
    Materializer(catalog, source, "orders", "orders").copy()
    send(source, 4)
    writer(catalog, source).copy()
    main, _ = tables(catalog)
    letters = DeadLetters(catalog, "orders", "orders")
    (found,) = verify(main, source, "orders", fields=parse(DDL), letters=letters)
    assert (found.is_clean, found.compared) == (True, 7)


def test_verify_accepts_null_arrays_of_structs(catalog: LakeCatalog, source: MemoryLog) -> None:
    ddl = "id bigint, items array<struct<sku:string>>"
    source.send(1, body=b'{"id": 1}')
    source.send(1, body=b'{"id": 2, "items": [{"sku": "a"}]}')
    source.send(1, body=BAD)
    writer(catalog, source, ddl).copy()
    assert_exact(catalog, source, ddl)


def test_random_bodies_are_in_one_table_each(catalog: LakeCatalog, source: MemoryLog) -> None:
    draw = Random(5)
    for _ in range(300):
        body = bytearray(b'{"id": 12, "name": "abc", "x": [1, {"y": null}]}')
        for _ in range(draw.randrange(3)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        source.send(1, body=bytes(body))
    writer(catalog, source).copy()
    assert_exact(catalog, source)
