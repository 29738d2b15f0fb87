"""The programs of examples/ that need Spark, each run as it stands in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import Message, blocking

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 600  # a deadline, for a machine that has much else to do
BODIES = ["one", "two", "größe"]


def run(program: str, name_server: str, folder: Path) -> str:
    """What a program prints. It finds the source without registering it."""
    env = {
        **os.environ,
        "NAMESRV_ADDR": name_server,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # On a busy machine a worker of Spark's needs more than 10 s to begin.
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --conf "
        "spark.python.authenticate.socketTimeout=120s pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=env,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.requirement("Spark: The examples for Spark as they stand: a table, a stream, a write")
def test_a_topic_is_shown_as_a_table_and_streamed_into_files_once(
    name_server: str, tmp_path: Path
) -> None:
    with blocking.Producer(name_server, group="shop") as producer:
        for body in BODIES:
            producer.send(Message("orders", body.encode()), timeout=20)
    shown = run("spark_batch.py", name_server, tmp_path).replace(" ", "")
    assert all(f"|{body}|" in shown for body in BODIES)
    for _ in range(2):  # the second run finds nothing new
        assert f"{len(BODIES)} rows" in run("spark_stream.py", name_server, tmp_path)


@pytest.mark.requirement("Spark: The examples for Spark as they stand: a table, a stream, a write")
def test_rows_of_a_table_are_messages(name_server: str, tmp_path: Path) -> None:
    run("spark_write.py", name_server, tmp_path)
    with blocking.Consumer(
        name_server, group="readers", topics=["paid-orders"], start="earliest"
    ) as consumer:
        found = set()
        for _ in range(2):
            message = consumer.receive(60)
            assert message is not None
            with message.process():
                found.add((message.keys[0], message.body.decode()))
    assert found == {("o-1", "paid"), ("o-2", "refunded")}
