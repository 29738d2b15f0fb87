"""The Java programs of examples/, run as they stand: RocketMQ's own client, Spring Boot, Camel."""

import signal
import subprocess
from pathlib import Path

import pytest
from aerobee.client import blocking
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.testing import LocalCluster

from .programs import SECONDS

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).parents[2] / "examples" / "java" / "FirstMessage.java"


def read_order(cluster: LocalCluster) -> tuple[list[str], bytes]:
    """Keys and body of the first paid order, as the Python client reads it."""
    with blocking.Consumer(
        cluster.name_server, group="other", topics={"orders": "paid"}, start="earliest"
    ) as consumer:
        message = consumer.receive(SECONDS)
        assert message is not None
        message.ack()
        return message.keys, message.body


def test_a_message_of_the_java_example_is_read_by_the_python_client(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        argv = ["java", *java_side.SHORT_LIVED, f"-Duser.home={tmp_path}"]
        argv += ["-cp", java_side.class_path(), str(PROGRAM), cluster.name_server]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "sendStatus=SEND_OK" in done.stdout
        assert read_order(cluster) == (["o-1"], b"12 EUR")


@pytest.mark.parametrize("name", ["spring_boot", "camel"])
def test_a_framework_sends_an_order_and_bills_it(name: str, tmp_path: Path) -> None:
    argv = java_side.example(name, "shop.Billing", home=tmp_path)
    with LocalCluster() as cluster:
        with blocking.Admin(cluster.name_server) as admin:
            admin.create_topic("orders")
        env = {"NAMESRV_ADDR": cluster.name_server}
        with Child(argv, tmp_path / "stderr", env, tmp_path) as program:
            program.wait_line(lambda line: line.startswith("sent"), SECONDS)
            program.wait_line(lambda line: line == "billed 12 EUR", SECONDS)
            assert program.stop(SECONDS) == 128 + signal.SIGTERM, program.tail()
        assert read_order(cluster) == (["o-1"], b"12 EUR")
