"""`aerobee ingest --format delta`, where a delta-spark for this PySpark is installed.

Delta's jars come through Maven when Spark starts. What a table holds is read as its log says it,
without Spark.
"""

import asyncio
import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import Message, Producer
from aerobee.harness.child import Child
from pyarrow import parquet

from ..waiting import PROCESS, wait_until
from .programs import SPARK_SECONDS, has_ended

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

TOPIC = "deltas"
INGEST = [sys.executable, "-m", "aerobee.scripts.cli", "ingest", TOPIC, "--format", "delta"]


@pytest.fixture
def delta_is_here() -> None:
    if find_spec("delta") is None:
        pytest.skip("delta-spark is not installed; pip install the one for this version of PySpark")


def send(name_server: str, *bodies: str) -> None:
    async def work() -> None:
        async with Producer(name_server, group="shop") as producer:
            for body in bodies:
                await producer.send(Message(TOPIC, body.encode(), tags=body[:1]), timeout=PROCESS)

    asyncio.run(work())


def table(folder: Path) -> list[tuple[str, str]]:
    """The rows of a table partitioned by tags, tag and body: the files that its log has left."""
    files: dict[str, str] = {}
    for version in sorted((folder / "_delta_log").glob("*.json")):
        for line in version.read_text().splitlines():
            action: dict[str, Any] = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]["partitionValues"]["tags"]
            elif "remove" in action:
                del files[action["remove"]["path"]]
    return sorted(
        (tag, value.decode())
        for path, tag in files.items()
        for value in parquet.ParquetFile(folder / path).read(["value"])["value"].to_pylist()
    )


@pytest.mark.usefixtures("delta_is_here")
def test_a_delta_table_holds_each_message_once(name_server: str, tmp_path: Path) -> None:
    words = ["-n", name_server, "--master", "local[1]", "--partition-by", "tags"]

    def run(folder: str, *more: str) -> str:
        argv = [*INGEST, "--to", str(tmp_path / folder), *words, *more]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SPARK_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    send(name_server, "a-1", "b-1")
    rows = [("a", "a-1"), ("b", "b-1")]
    assert f"wrote 2 rows of {TOPIC} as delta" in run("once")
    assert table(tmp_path / "once") == rows
    assert "wrote 2 rows" in run("stream", "--available-now")
    assert table(tmp_path / "stream") == rows

    send(name_server, "a-2")
    rows = sorted([*rows, ("a", "a-2")])
    assert "wrote 1 row " in run("stream", "--available-now")
    assert table(tmp_path / "stream") == rows
    assert "wrote 3 rows" in run("once", "--overwrite")
    assert table(tmp_path / "once") == rows

    argv = [*INGEST, "--to", str(tmp_path / "stream"), *words, "--continuous"]
    with Child(argv, tmp_path / "stderr", cwd=tmp_path) as stream:
        send(name_server, "c-1")
        rows = sorted([*rows, ("c", "c-1")])
        wait_until(
            lambda: has_ended(stream) or table(tmp_path / "stream") == rows,
            stream.tail,
            seconds=SPARK_SECONDS,
        )
        stream.process.send_signal(signal.SIGTERM)
        assert stream.wait(SPARK_SECONDS) == 0, stream.tail()
    assert table(tmp_path / "stream") == rows


def test_without_delta_spark_one_sentence_says_what_to_install(
    name_server: str, tmp_path: Path
) -> None:
    if find_spec("delta") is not None:
        pytest.skip("delta-spark is installed")
    send(name_server, "a-1")
    for more in ([], ["--available-now"]):
        argv = [*INGEST, "--to", str(tmp_path / "table"), "-n", name_server, *more]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SPARK_SECONDS)
        assert done.returncode == 1
        assert done.stderr.startswith("aerobee ingest: format delta needs the package delta-spark")
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "table").exists()
