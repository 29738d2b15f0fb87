"""Spark reads a table of a lake and what came since as one DataFrame."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.blocking import Message, Producer
from aerobee.lake.rows.columns import row_columns
from aerobee.scripts.cli import main

from .programs import Driver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

COUNT = 60
PROGRAM = Path(__file__).with_name("table_program.py")
DDL = "n bigint, at timestamp, `a b` struct<x:array<int>,`y-z`:string>, day date, body_key boolean"


@pytest.mark.parametrize("in_table", [0, COUNT // 2, COUNT], ids=["none", "half", "all"])
def test_every_message_is_a_row_once_in_the_table_or_live(
    name_server: str, tmp_path: Path, driver: Driver, in_table: int
) -> None:
    topic = f"table_{in_table}"
    config = str(tmp_path / "lake.yaml")
    words = ["--config", config, "-n", name_server]
    with Producer(name_server) as producer:
        producer.send(Message(topic, b"0", keys=["first", "key"]))
        assert main(["lake", "add", topic, "--to", str(tmp_path / "tables"), *words]) == 0
        for number in range(1, COUNT + 1):
            if number == in_table:
                assert main(["lake", "run", "--once", *words]) == 0
            if number < COUNT:
                producer.send(Message(topic, str(number).encode()))
    found = driver.found_by(PROGRAM, config, topic)
    assert sorted(map(int, found["bodies"])) == list(range(COUNT))
    assert found["columns"] == [column.name for column in row_columns(full=True)]
    assert found["keys"] == [[]] * (COUNT - 1) + [["first", "key"]]
    assert found["since"] == found["expected_since"] > 0
    assert bool(found["files"]) == bool(in_table)


@pytest.mark.parametrize("in_table", [0, 4, 8], ids=["none", "half", "all"])
def test_columns_of_json_are_those_of_the_bodies_in_the_table_and_live(
    name_server: str, tmp_path: Path, driver: Driver, in_table: int
) -> None:
    topic = f"json_{in_table}"
    config = str(tmp_path / "lake.yaml")
    words = ["--config", config, "-n", name_server]
    bodies = [
        {
            "n": number,
            "at": "2026-02-28T12:00:00+01:00",
            "a b": {"x": [1, None], "y-z": "é"} if number % 2 else None,
            "day": "2026-02-28",
            "key": True,
        }
        for number in range(4)
    ]
    sent = [json.dumps(each) for half in (bodies[:2], bodies[2:]) for each in half]
    sent[1:1], sent[4:4] = ['{"n": "no number"}'], ["no JSON"]
    assert len(sent) == 6
    with Producer(name_server) as producer:
        producer.send(Message(topic, b"{}"))
        add = ["lake", "add", topic, "--to", str(tmp_path / "tables"), "--fields", DDL]
        assert main([*add, *words]) == 0
        for number, body in enumerate([*sent, "{}"], 1):
            producer.send(Message(topic, body.encode()))
            if number == in_table - 1:
                assert main(["lake", "run", "--once", *words]) == 0
    found = driver.found_by(PROGRAM, config, topic)
    rows = [json.loads(each) for each in found["json"]]
    assert sorted(rows, key=lambda row: row.get("n", -1)) == [
        {},
        {},
        *(
            {
                "n": number,
                "at": "2026-02-28T11:00:00.000Z",
                **({"a b": {"x": [1, None], "y-z": "é"}} if number % 2 else {}),
                "day": "2026-02-28",
                "body_key": True,
            }
            for number in range(4)
        ),
    ]
    assert bool(found["files"]) == bool(in_table)
    if in_table == 4:
        letters = driver.found_by(PROGRAM, config, f"{topic}__dlq")
        assert sorted(letters["bodies"]) == ["no JSON", '{"n": "no number"}']
        assert all(json.loads(each)["reason"] for each in letters["json"])
