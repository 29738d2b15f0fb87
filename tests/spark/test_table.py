"""Spark reads a table of a lake and what came since as one DataFrame."""

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.blocking import Message, Producer
from aerobee.lake.rows.columns import row_columns
from aerobee.scripts.cli import main

from .programs import Driver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

COUNT = 60


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
    found = driver.found_by(Path(__file__).with_name("table_program.py"), config, topic)
    assert sorted(map(int, found["bodies"])) == list(range(COUNT))
    assert found["columns"] == [column.name for column in row_columns(full=True)]
    assert found["keys"] == [[]] * (COUNT - 1) + [["first", "key"]]
    assert found["since"] == found["expected_since"] > 0
    assert bool(found["files"]) == bool(in_table)
