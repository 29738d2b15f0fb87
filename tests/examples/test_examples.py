"""Every program of examples/ prints what it promises, run unchanged in a process of its own.

The examples that need Java or Spark are run by tests/interop/test_java_example.py and
tests/spark/test_spark_examples.py, those with a client of RocketMQ 5 by tests/proxy/clients.
"""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.client import Message, blocking
from aerobee.harness.child import Child
from aerobee.harness.java_side import free_ports
from aerobee.testing import LocalCluster

from ..waiting import PROCESS

EXAMPLES = Path(__file__).parents[2] / "examples"
# What each program prints; {} stands for the parts that differ from run to run.
PRINTED = {
    "first_message.py": ["sent {}", "received ['o-1'] 12 EUR"],
    "send_many.py": ["1000 messages are stored"],
    "in_order.py": ["o-1 created", "o-1 paid", "o-1 sent"],
    "transactions.py": ["committed"],
    "delay_and_recall.py": ["took back {}"],
    "request_reply.py": ["the price is 12.50"],
    "polling.py": ["{} 0 12 EUR"],
    "popping.py": ["to: a@example.org"],
    "sql_condition.py": ["12 EUR"],
    "without_asyncio.py": ["12 EUR"],
    "taskiq_broker.py": ["billed 12 EUR"],
    "celery_transport.py": ["billed 12 EUR"],
}
ELSEWHERE = {
    *("billing_service.py", "web_service.py", "fastapi_service.py", "test_reminders.py"),
    *("users_and_rules.py", "store_as_arrays.py", "store_in_frames.py", "lake_table.py"),
    "lake_frames.py",  # these are below
    *("spark_batch.py", "spark_stream.py", "spark_write.py", "spark_lake_stream.py"),
    "java/FirstMessage.java",
    *("grpc/FirstMessage.java", "grpc/first_message.go", "grpc/first_message.js"),
    *("grpc/first_message.py", "grpc/first_message.rs"),
    "spring_boot/src/main/java/shop/Billing.java",
    "camel/src/main/java/shop/Billing.java",
}


def environment(cluster: LocalCluster) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": cluster.name_server}


def run(program: str, *words: str, cluster: LocalCluster, folder: Path) -> list[str]:
    """The lines that a program prints; it exits with 0 and writes nothing to standard error."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / program, *words],
        capture_output=True,
        text=True,
        timeout=PROCESS,
        cwd=folder,
        env=environment(cluster),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run_by_a_test() -> None:
    there = {
        str(path.relative_to(EXAMPLES))
        for path in EXAMPLES.rglob("*.*")
        if path.suffix in (".py", ".java", ".go", ".js", ".rs") and "cache" not in str(path.parent)
    }
    assert there == set(PRINTED) | ELSEWHERE


@pytest.mark.parametrize("program", sorted(PRINTED))
def test_an_example_prints_what_it_promises(
    program: str, aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    printed = run(program, cluster=aerobee_cluster, folder=tmp_path)
    wanted = PRINTED[program]
    assert len(printed) == len(wanted), printed
    for line, pattern in zip(printed, wanted, strict=True):
        before, _, after = pattern.partition("{}")
        assert line.startswith(before), printed
        assert line.endswith(after), printed


def test_the_service_bills_until_it_is_stopped(
    aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    with blocking.Producer(aerobee_cluster.name_server) as producer:
        producer.send(Message("orders", b"12 EUR"))
    argv = [sys.executable, str(EXAMPLES / "billing_service.py")]
    with Child(argv, tmp_path / "stderr", environment(aerobee_cluster), tmp_path) as service:
        service.wait_line(lambda line: line == "billed 12 EUR", PROCESS)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PROCESS) == 0, service.tail()


def test_the_web_service_sends_what_is_posted(
    aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    start = f"web.run_app(service(), host='127.0.0.1', port={port})"
    program = f"from web_service import service, web; {start}"
    argv = [sys.executable, "-c", program]
    with Child(argv, tmp_path / "stderr", environment(aerobee_cluster), EXAMPLES) as service:
        service.wait_line(lambda line: "Running on" in line, PROCESS)
        url = f"http://127.0.0.1:{port}/orders"
        with urllib.request.urlopen(url, b"12 EUR", timeout=PROCESS) as answer:
            assert answer.status == 202
        with blocking.Consumer(
            aerobee_cluster.name_server, group="g", topics=["orders"], start="earliest"
        ) as consumer:
            message = consumer.receive(PROCESS)
            assert message is not None
            assert message.body == b"12 EUR"
            message.ack()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PROCESS) == 0, service.tail()


def test_the_service_on_fastapi_sends_what_is_posted(
    aerobee_cluster: LocalCluster, tmp_path: Path
) -> None:
    program = (
        "import uvicorn; from fastapi_service import app; config = uvicorn.config.LOGGING_CONFIG; "
        "config['handlers']['default']['stream'] = 'ext://sys.stdout'; "
        "uvicorn.run(app, host='127.0.0.1', port=0, log_config=config)"
    )
    argv = [sys.executable, "-c", program]
    with Child(argv, tmp_path / "stderr", environment(aerobee_cluster), EXAMPLES) as service:
        line = service.wait_line(lambda line: "running on" in line, PROCESS)
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None, line
        with urllib.request.urlopen(f"{found[0]}/orders", b"13 EUR", timeout=PROCESS) as answer:
            assert answer.status == 202
        with blocking.Consumer(
            aerobee_cluster.name_server, group="api", topics=["orders"], start="earliest"
        ) as consumer:
            bodies = []
            while b"13 EUR" not in bodies:  # other examples send to this topic, too
                message = consumer.receive(PROCESS)
                assert message is not None
                bodies.append(message.body)
                message.ack()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PROCESS) in (0, -signal.SIGTERM), service.tail()


def test_the_test_of_the_example_passes_with_pytest_alone_in_a_checkout() -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    argv += ["-p", "no:asyncio", "-p", "no:xdist", "examples/test_reminders.py"]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=PROCESS, cwd=EXAMPLES.parent, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_user_may_do_what_the_access_rules_allow(
    aerobee_clusters: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = aerobee_clusters(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user='{"username":"admin","password":"choose-one"}',
    )
    assert run("users_and_rules.py", cluster=cluster, folder=tmp_path) == ["SEND_OK"]


def test_a_store_is_read_as_arrays(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with LocalCluster(folder=tmp_path) as cluster:
        with blocking.Producer(cluster.name_server) as producer:
            bodies = [b"x" * size for size in (10, 20, 30)]
            queue = None
            for body in bodies:
                queue = producer.send(Message("orders", body), queue=queue).queue
        assert queue is not None
        store = str(tmp_path / "broker-a")
        printed = run("store_as_arrays.py", store, cluster=cluster, folder=tmp_path)
    found = [line for line in printed if line.startswith(f"orders {queue.queue_id} ")]
    assert found, printed
    assert found[0].startswith(f"orders {queue.queue_id} 3 messages, ")
    assert "3 rows" in printed


def test_a_table_is_asked_with_duckdb(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        with blocking.Admin(cluster.name_server) as admin:
            admin.create_topic("orders")  # returns when the name server knows it
        with blocking.Producer(cluster.name_server) as producer:
            for tags in ("paid", "paid", "refunded"):
                producer.send(Message("orders", b"12 EUR", tags=tags))
        lake = [sys.executable, "-m", "aerobee.scripts.cli", "lake"]
        for words in (["add", "orders", "--to", "tables"], ["run", "--once"]):
            subprocess.run(
                [*lake, *words],
                cwd=tmp_path,
                env=environment(cluster),
                timeout=PROCESS,
                check=True,
                capture_output=True,
            )
        printed = run("lake_table.py", cluster=cluster, folder=tmp_path)
        with blocking.Producer(cluster.name_server) as producer:
            producer.send(Message("orders", b"12 EUR", tags="paid"))
        frames = run("lake_frames.py", cluster=cluster, folder=tmp_path)
    assert printed == ["paid 2", "refunded 1", "3 rows"]
    assert frames[-1] == "4 messages"


def test_a_store_is_asked_with_polars_pandas_and_duckdb(tmp_path: Path) -> None:
    with LocalCluster(folder=tmp_path) as cluster:
        with blocking.Producer(cluster.name_server) as producer:
            for body in (b"12 EUR", b"7 EUR"):
                producer.send(Message("orders", body))
        store = str(tmp_path / "broker-a")
        printed = run("store_in_frames.py", store, cluster=cluster, folder=tmp_path)
    assert printed[0] == "polars: 2 messages, 11 bytes"
    assert "12 EUR" in printed[1]
    assert "7 EUR" in printed[1]
    assert printed[2] == "DuckDB: 2 messages"
