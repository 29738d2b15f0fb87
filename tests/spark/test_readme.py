"""What the README says about Spark, pasted into a PySpark shell."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import Message, Producer

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

ROOT = Path(__file__).parents[2]
SECONDS = 600  # a deadline, for a machine that has much else to do
BODIES = [b"one", b"two", "größe".encode()]
CHECK = """
from aerobee.spark import register

register(spark)  # which must do no harm where PySpark has found the source


def look(topic):
    rows = spark.read.format("rocketmq").option("subscribe", topic).load().collect()
    return sorted((row.key, bytes(row.value).decode()) for row in rows)


written = spark.read.parquet("orders.parquet").collect()
print("FOUND", sorted(bytes(row.value).decode() for row in written), look("paid-orders"))
"""


def blocks() -> list[str]:
    """The Python in the README's part about Spark that needs a session."""
    text = (ROOT / "README.md").read_text().partition("## From Spark\n")[2].partition("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return [block for block in found if "spark." in block]


def test_the_readmes_lines_work_in_a_pyspark_shell(name_server: str, tmp_path: Path) -> None:
    import pyspark

    async def send() -> None:
        async with Producer(name_server, group="shop") as producer:
            for body in BODIES:
                await producer.send(Message("orders", body), timeout=20)

    asyncio.run(send())
    # The package that PySpark finds by its name is there by `pip install`, also of this checkout
    # when it is editable.
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "pyspark_rocketmq").symlink_to(ROOT / "spark" / "pyspark_rocketmq")
    env = {
        **os.environ,
        "NAMESRV_ADDR": name_server,
        "PYTHONPATH": str(tmp_path / "path"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONSTARTUP": "",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    shell = [str(Path(pyspark.__path__[0]) / "bin" / "pyspark"), "--master", "local[2]"]
    shell += ["--conf", "spark.ui.enabled=false"]
    shell += ["--conf", "spark.python.authenticate.socketTimeout=120s"]
    # Each block as it is pasted: an empty line ends what is indented.
    lines = "\n\n".join([*blocks(), CHECK, "exit()"])
    done = subprocess.run(
        shell, input=lines, capture_output=True, text=True, timeout=SECONDS, env=env, cwd=tmp_path
    )
    assert len(blocks()) == 2
    found = [line for line in done.stdout.splitlines() if "FOUND" in line]
    assert found, f"exit code {done.returncode}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    bodies = sorted(body.decode() for body in BODIES)
    assert found[0].partition("FOUND ")[2] == f"{bodies} {[('o-1', 'paid')]}"
    assert all(f"|{body}|" in done.stdout.replace(" ", "") for body in bodies)  # what show() shows
