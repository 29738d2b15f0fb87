"""The programs of examples/ that need Spark, each run as it stands."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

from aerobee.client import Message, blocking
from aerobee.scripts.cli import main

from ..waiting import PROCESS
from .programs import Driver

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

EXAMPLES = Path(__file__).parents[2] / "examples"
BODIES = ["one", "two", "größe"]


@pytest.fixture(scope="module")
def examples(name_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """What runs them; they find the source without registering it."""
    env = {
        "NAMESRV_ADDR": name_server,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # On a busy machine a worker of Spark's needs more than 10 s to begin.
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --conf "
        "spark.python.authenticate.socketTimeout=120s pyspark-shell",
    }
    with Driver(tmp_path_factory.mktemp("examples"), env) as driver:
        yield driver


def test_a_topic_is_shown_as_a_table_and_streamed_into_files_once(
    name_server: str, examples: Driver
) -> None:
    with blocking.Producer(name_server, group="shop") as producer:
        for body in BODIES:
            producer.send(Message("orders", body.encode()), timeout=PROCESS)
    shown = examples.run(EXAMPLES / "spark_batch.py").replace(" ", "")
    assert all(f"|{body}|" in shown for body in BODIES)
    for _ in range(2):  # the second run finds nothing new
        assert f"{len(BODIES)} rows" in examples.run(EXAMPLES / "spark_stream.py")


def test_a_stream_begins_in_a_topics_table(
    name_server: str, examples: Driver, tmp_path: Path
) -> None:
    config = str(tmp_path / "lake.yaml")
    words = ["--config", config, "-n", name_server]
    for run in range(2):  # the second finds its first message in the table, others in the log
        with blocking.Producer(name_server, group="shop") as producer:
            producer.send(Message("orders", b"in the table"), timeout=PROCESS)
            if not run:
                assert main(["lake", "add", "orders", "--to", str(tmp_path / "t"), *words]) == 0
            assert main(["lake", "run", "--once", *words]) == 0
            producer.send(Message("orders", b"in the log"), timeout=PROCESS)
        with blocking.Reader(name_server) as reader:
            count = sum(map(reader.max_offset, reader.queues("orders")))
        assert f"{count} rows" in examples.run(EXAMPLES / "spark_lake_stream.py", config)


def test_rows_of_a_table_are_messages(name_server: str, examples: Driver) -> None:
    examples.run(EXAMPLES / "spark_write.py")
    with blocking.Consumer(
        name_server, group="readers", topics=["paid-orders"], start="earliest"
    ) as consumer:
        found: set[tuple[str, str]] = set()
        while len(found) < 2:
            message = consumer.receive(PROCESS)
            assert message is not None
            with message.process():
                found.add((message.keys[0], message.body.decode()))
    assert found == {("o-1", "paid"), ("o-2", "refunded")}
