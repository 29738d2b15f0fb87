"""`aerobee sql`: formats of results, and what it says of a wrong query."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import duckdb
from aerobee.client.blocking import Message, Producer
from aerobee.lake.catalog import table_name
from aerobee.scripts.cli import main
from aerobee.testing.cluster import LocalCluster

from ..command import Inside

QUERY = "select tags, count(*) as n, min(decode(value)) as least from orders group by 1 order by 1"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Settings of a lake whose table has half of the messages; the other half is live."""
    folder = tmp_path_factory.mktemp("sql")
    with LocalCluster() as cluster, Producer(cluster.name_server) as producer:
        words = ["--config", str(folder / "lake.yaml"), "-n", cluster.name_server]
        for tags in ("first", "then"):
            for number in range(3):
                producer.send(Message("orders", f"\x1b{number}".encode(), tags=tags))
            if tags == "first":
                assert main(["lake", "add", "orders", "--to", str(folder / "w"), *words]) == 0
                assert main(["lake", "run", "--once", *words]) == 0
        yield folder / "lake.yaml"


def test_a_table_for_people_has_no_control_characters(config: Path, inside: Inside) -> None:
    out = inside.output("sql", QUERY, "--config", str(config))
    assert [line.split() for line in out.splitlines()] == [
        ["tags", "n", "least"],
        ["first", "3", "\\x1b0"],
        ["then", "3", "\\x1b0"],
    ]


def test_json_has_an_object_a_line(config: Path, inside: Inside) -> None:
    found = inside.objects("sql", QUERY, "--config", str(config))
    assert found == [{"tags": tags, "n": 3, "least": "\x1b0"} for tags in ("first", "then")]


def test_every_column_of_a_message_can_be_written_as_json(config: Path, inside: Inside) -> None:
    words = ("select * from orders limit 1", "--config", str(config))
    [found] = inside.objects("sql", *words)
    assert found["topic"] == "orders"
    assert found["timestamp"].endswith("+00:00")
    assert isinstance(found["properties"], dict)


def test_csv_and_parquet_go_to_a_file(config: Path, inside: Inside, tmp_path: Path) -> None:
    words = ("sql", QUERY, "--config", str(config))
    for form in ("csv", "parquet"):
        file = tmp_path / f"out.{form}"
        assert inside(*words, "--format", form, "--output", str(file))[0] == 0
        rows = duckdb.connect().execute(f"select tags, n from '{file}'").fetchall()
        assert rows == [("first", 3), ("then", 3)]


NESTED = (
    "select [{'sku': 'a\"', 'n': 1}, null] as items, {'at': date '2030-01-31', 'is': true} as s, "
    "map {'b': 'x'::blob} as m, 'y'::blob as b, timestamp '2030-01-31 12:00' as t"
)
CELLS = [
    '[{"sku": "a\\"", "n": 1}, null]',
    '{"at": "2030-01-31", "is": true}',
    '{"b": "x"}',
    "y",
    "2030-01-31T12:00:00",
]


def test_nested_values_are_json_in_a_cell(config: Path, inside: Inside) -> None:
    words = ("sql", NESTED, "--config", str(config))
    lines = inside.output(*words, "--format", "csv").splitlines()
    assert list(csv.reader(lines)) == [["items", "s", "m", "b", "t"], CELLS]
    assert re.split(" {2,}", inside.output(*words).splitlines()[1]) == CELLS


@pytest.mark.parametrize(
    ("query", "last"),
    [
        ("set threads = 1; select 2 as n", "2"),
        ("create table x as select 3 as n; from x; -- all", "3"),
        ("pivot (select 'a' as name, 4 as n) on name using sum(n)", "4"),
        ("show tables", "name"),
        ("pragma version", "codename"),
    ],
)
def test_a_query_of_any_kind_that_gives_rows_is_done(
    config: Path, inside: Inside, query: str, last: str
) -> None:
    out = inside.output("sql", query, "--config", str(config))
    assert last in out.split()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("select nothing from orders",), 'column "nothing" not found'),
        (("select * from absent",), "absent"),
        (("select 1", "--format", "parquet"), "--format parquet needs --output FILE"),
        (("select 1", "--from", "soon"), "--from soon is no place to begin"),
        (("select 1", "--from", "9" * 17), "give a time of 0 to 253402300799999 ms"),
        (("",), "the query '' asks for nothing; give one that does: select tags, count(*)"),
        ((" ; ",), "the query ' ; ' asks for nothing; give"),
        (("-- orders",), "the query '-- orders' asks for nothing; give"),
        (("/* \n */",), r"the query '/* \n */' asks for nothing; give"),
        (("set threads = 1",), "the query ends in a statement (SET) that gives no rows; give"),
        (("create table x (y int)",), "ends in a statement (CREATE) that gives no rows; give"),
        (("select 1; begin",), "ends in a statement (TRANSACTION) that gives no rows; give"),
        (
            ("set threads = 1", "--format", "parquet", "--output", "/dev/null"),
            "the query ends in a statement (SET) that gives no rows; give",
        ),
    ],
)
def test_a_wrong_query_is_one_sentence(
    config: Path, inside: Inside, words: tuple[str, ...], told: str
) -> None:
    code, out, err = inside("sql", *words, "--config", str(config))
    assert (code, out) == (1, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_broker_that_is_gone_is_told_without_a_traceback(config: Path, inside: Inside) -> None:
    code, _, err = inside("sql", QUERY, "--config", str(config), "-n", "127.0.0.1:1")
    assert code == 1
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err


def test_without_its_packages_it_says_what_to_install(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.scripts.commands.sql.find_spec", lambda name: None)
    code, _, err = inside("sql", "select 1")
    assert code == 1
    assert "pip install 'aerobee[lake]'" in err


def test_the_help_names_tables_as_the_lake_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["sql", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for topic in ("shop.a", "%DLQ%g"):
        assert f"{topic} is {table_name(topic)}" in told
    assert "--table" in told
