"""`aerobee sql`: formats of results, and what it says of a wrong query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import duckdb
from aerobee.client.blocking import Message, Producer
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("select nothing from orders",), 'column "nothing" not found'),
        (("select * from absent",), "absent"),
        (("select 1", "--format", "parquet"), "--format parquet needs --output FILE"),
        (("select 1", "--from", "soon"), "--from soon is no place to begin"),
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
