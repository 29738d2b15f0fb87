"""A signal to the process group of `aerobee ingest`, as a terminal or systemd sends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from aerobee.client import blocking
from aerobee.client.base.message import Message
from aerobee.testing import LocalCluster

from ..waiting import wait_until
from .programs import SPARK_SECONDS
from .tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

MESSAGES = 2_000
OF_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector"


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with LocalCluster() as cluster:
        with blocking.Producer(cluster.name_server) as producer:
            producer.send_batch([Message("orders", b"%d" % each) for each in range(MESSAGES)])
        yield cluster.name_server


class Ingest:
    """The command in a process group of its own."""

    def __init__(self, name_server: str, target: Path, *words: str) -> None:
        argv = [sys.executable, "-m", "aerobee.scripts.cli", "ingest", "orders", *words]
        argv += ["--to", str(target), "-n", name_server, "--master", "local[2]"]
        self.process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def signalled(self, number: int) -> tuple[int, list[str]]:
        """The exit code after this signal, and the lines on standard error."""
        os.killpg(self.process.pid, number)
        _, told = self.process.communicate(timeout=SPARK_SECONDS)
        return self.process.returncode, [line for line in told.splitlines() if line != OF_THE_JVM]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stream_is_stopped_in_one_line_and_the_same_command_goes_on(
    name_server: str, tmp_path: Path, number: int, code: int
) -> None:
    target = tmp_path / "orders"
    first = Ingest(name_server, target, "--available-now")
    checkpoint = tmp_path / "orders.checkpoint"
    wait_until(checkpoint.exists, str(checkpoint), seconds=SPARK_SECONDS, pause=0.05)
    assert first.signalled(number) == (
        code,
        [
            f"orders holds {MESSAGES:,} messages; starting Spark on local[2], "
            "which takes some seconds",
            "aerobee ingest: stopped; the same command goes on",
        ],
    )
    again = Ingest(name_server, target, "--available-now").process
    out, told = again.communicate(timeout=SPARK_SECONDS)
    assert again.returncode == 0, told
    assert out.startswith("wrote ")
    values = sorted(int(row["value"]) for row in rows_of(target))
    assert values == list(range(MESSAGES))


def test_a_signal_while_spark_starts_is_one_line_too(name_server: str, tmp_path: Path) -> None:
    started = Ingest(name_server, tmp_path / "orders")
    assert started.process.stderr is not None
    assert "starting Spark" in started.process.stderr.readline()
    code, told = started.signalled(signal.SIGTERM)
    assert code == 143
    assert told == [
        f"aerobee ingest: stopped; {tmp_path / 'orders'} is not complete or not there; the same "
        "command with --overwrite writes it from the start"
    ]
