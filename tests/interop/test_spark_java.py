"""PySpark's source on a real broker: what Java and Python producers sent, batch and stream."""

from __future__ import annotations

import asyncio
import hashlib
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import Message, Producer
from aerobee.harness.clusters import BROKER_NAME, JavaCluster

from ..spark.programs import Driver, driver
from .programs import Java, Mqadmin

pytestmark = [pytest.mark.java, pytest.mark.spark]

__all__ = ["driver"]  # a fixture

TOPIC = "SparkReads"
OURS = {
    "binary": bytes(range(256)),
    "large": os.urandom(1 << 20) * 4,  # 4 MiB, the most that a broker takes
    "packed": b"so much of the same " * 1_000,  # travels compressed
}
Row = tuple[str, str | None, int, str, str | None]


def row(key: str, tags: str | None, body: bytes, own: str | None = None) -> Row:
    return key, tags, len(body), hashlib.sha256(body).hexdigest(), own


@pytest.fixture(scope="module")
def sent(java: Java, java_cluster: JavaCluster, mqadmin: Mqadmin) -> list[Row]:
    """All that was sent: key, tags, size and digest of the body, a property."""
    if find_spec("pyspark") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must run the Spark tests: pyspark is not installed")
        pytest.skip("pyspark is not installed")
    mqadmin.create_topic(java_cluster, TOPIC, queues=4)
    found = []
    # Bodies of 4 KiB and more are compressed by the Java client, those of batches are not.
    for mode, size, prefix in (("sync", 6_000, "c"), ("batch", 100, "b"), ("sync", 0, "s")):
        java.produce(
            namesrv=java_cluster.namesrv,
            topic=TOPIC,
            mode=mode,
            count=40,
            size=size,
            prefix=prefix,
            tags="red,blue",
        )
        for number in range(40):
            key = f"{prefix}-{number}"
            body = key.encode().ljust(size, b".")
            found.append(row(key, ("red", "blue")[number % 2], body))

    async def send() -> None:
        async with Producer(java_cluster.namesrv, group="spark") as producer:
            for key, body in OURS.items():
                message = Message(TOPIC, body, keys=[key], properties={"größe": "groß 🐝"})
                await producer.send(message, timeout=30)
                found.append(row(key, None, body, "groß 🐝"))

    asyncio.run(send())
    return sorted(found)


@pytest.fixture(scope="module")
def found(
    java_cluster: JavaCluster,
    sent: list[Row],
    driver: Driver,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What the program printed."""
    program = Path(__file__).with_name("spark_program.py")
    folder = tmp_path_factory.mktemp("spark")
    return driver.found_by(program, java_cluster.namesrv, TOPIC, str(folder))


@pytest.mark.parametrize("how", ["batch", "stream"])
def test_every_message_on_a_java_broker_is_a_row(
    found: dict[str, Any], sent: list[Row], how: str
) -> None:
    assert sorted(tuple(each[:5]) for each in found[how]) == sent
    assert {each[5] for each in found[how]} == {BROKER_NAME}


def test_micro_batches_keep_to_their_limit(found: dict[str, Any], sent: list[Row]) -> None:
    assert sum(found["micro-batches"]) == len(sent)
    assert max(found["micro-batches"]) <= 40


def test_more_tasks_and_small_pulls_give_the_same(found: dict[str, Any], sent: list[Row]) -> None:
    assert (found["chunks"], found["few"]) == (len(sent), len(sent))


def test_the_java_broker_compares_tags(found: dict[str, Any]) -> None:
    assert found["tags"] == 60


def test_offsets_that_it_does_not_hold_are_told(found: dict[str, Any]) -> None:
    assert (
        f"of topic {TOPIC} on {BROKER_NAME} were asked for, the broker holds 0 to"
        in (found["error"])
    )
