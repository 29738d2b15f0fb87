"""What the Spark tests need of this machine, and an aerobee cluster for them."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.harness.clusters import SMALL_FILES

from ..waiting import PROCESS
from .programs import driver

__all__ = ["driver"]  # a fixture


@pytest.fixture(scope="session")
def spark_is_here() -> None:
    """Skips without PySpark or Java, with the reason; in CI that is a failure."""
    lack = _lack()
    if lack is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the Spark tests: {lack}")
    pytest.skip(lack)


def _lack() -> str | None:
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed; pip install '.[spark]'"
    from aerobee.spark.session import SparkFailed, check_java

    try:
        check_java()
    except SparkFailed as wrong:
        return str(wrong)
    return None


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the name server of a running cluster."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    names, broker = *java_side.free_ports(1), java_side.free_broker_port()
    argv = [sys.executable, "-m", "aerobee.scripts.cli", "up", "--namesrv-port", str(names)]
    argv += ["--listen-port", str(broker), "--store", str(folder / "store")]
    argv += ["--set", "brokerName=broker-a", "--set", "httpPort=0"]
    for key, value in SMALL_FILES.items():
        argv += ["--set", f"{key}={value}"]
    with Child(argv, folder / "stderr", cwd=folder) as cluster:
        cluster.wait_line(lambda line: "ready" in line, PROCESS)
        yield f"127.0.0.1:{names}"
        assert cluster.stop() == 0, cluster.tail()
