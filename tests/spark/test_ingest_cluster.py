"""`aerobee ingest` on a Spark cluster: a master and a worker, as in docker-compose.yml."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import Message, Producer
from aerobee.harness import java_side
from aerobee.harness.child import Child
from pyarrow import parquet

from ..waiting import PROCESS
from .programs import SPARK_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

TOPIC = "orders"
DEPLOY = "org.apache.spark.deploy"


def test_executors_of_a_cluster_read_the_topic(name_server: str, tmp_path: Path) -> None:
    import pyspark

    home = Path(pyspark.__path__[0])
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    (port,) = java_side.free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    spark_class = [str(home / "bin" / "spark-class")]
    master = [*spark_class, f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [*spark_class, f"{DEPLOY}.worker.Worker", "--host", "127.0.0.1", "--cores", "2"]
    worker += ["--memory", "1g", "--work-dir", str(tmp_path / "work")]
    bodies = [b"%d" % number for number in range(100)]
    asyncio.run(send(name_server, bodies))
    argv = [sys.executable, "-m", "aerobee.scripts.cli", "ingest", TOPIC, "-n", name_server]
    argv += ["--to", str(tmp_path / "orders"), "--master", url, "--available-now"]
    with (
        Child([*master, "--webui-port", "0"], tmp_path / "master", env=env, cwd=tmp_path),
        Child([*worker, "--webui-port", "0", url], tmp_path / "worker", env=env, cwd=tmp_path),
    ):
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=SPARK_SECONDS, env={**os.environ, **env}
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote 100 rows of {TOPIC} as parquet to ")
    found = [
        bytes(row["value"])
        for file in (tmp_path / "orders").glob("*.parquet")
        for row in parquet.ParquetFile(file).read().to_pylist()
    ]
    assert sorted(found) == sorted(bodies)
    assert list((tmp_path / "work").iterdir()), "no executor has worked in the worker's folder"


async def send(name_server: str, bodies: list[bytes]) -> None:
    async with Producer(name_server, group="shop") as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body), timeout=PROCESS)
