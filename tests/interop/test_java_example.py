"""The Java program of examples/, run as it stands with RocketMQ's own client."""

import subprocess
from pathlib import Path

import pytest
from aerobee.client import blocking
from aerobee.scripts.harness import java_side
from aerobee.testing import LocalCluster

from .programs import SECONDS

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).parents[2] / "examples" / "java" / "FirstMessage.java"


@pytest.mark.requirement(
    "Documents: Every program of the README and of the pages is an example, and every example is "
    "run"
)
def test_a_message_of_the_java_example_is_read_by_the_python_client(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        argv = ["java", *java_side.SHORT_LIVED, f"-Duser.home={tmp_path}"]
        argv += ["-cp", java_side.class_path(), str(PROGRAM), cluster.name_server]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "sendStatus=SEND_OK" in done.stdout
        with blocking.Consumer(
            cluster.name_server, group="g", topics={"orders": "paid"}, start="earliest"
        ) as consumer:
            message = consumer.receive(SECONDS)
            assert message is not None
            assert (message.keys, message.body) == (["o-1"], b"12 EUR")
            message.ack()
