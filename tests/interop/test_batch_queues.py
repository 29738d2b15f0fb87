"""Topics with batch consume queues: Java's clients against ours, the real broker on our store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.scripts.harness.clusters import TEST_BROKER_FLAGS, AerobeeCluster, Cluster, JavaCluster

from .programs import SECONDS, Java, Mqadmin

TOPIC = "Batches"
SETTINGS: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
}


@pytest.fixture
def brokers(java_is_here: None, tmp_path: Path) -> Iterator[dict[str, Cluster]]:
    """Our cluster and the real one, on one store."""
    settings = SETTINGS | {"storePathRootDir": str(tmp_path / "store")}
    both: dict[str, Cluster] = {
        "ours": AerobeeCluster(tmp_path / "ours", settings),
        "java": JavaCluster(tmp_path / "java", settings, flags=TEST_BROKER_FLAGS),
    }
    yield both
    for cluster in both.values():
        cluster.stop()


def send_batches(java: Java, cluster: Cluster, prefix: str) -> list[str]:
    """Sends three batches of eight; returns the keys of their messages."""
    orders = {"namesrv": cluster.namesrv, "topic": TOPIC, "mode": "batch", "batch": 8}
    program = java.start("Produce", **orders, count=24, prefix=prefix)
    assert program.wait_event("done", SECONDS)["failed"] == 0
    sent = program.events("batch")
    assert [each["status"] for each in sent] == ["SEND_OK"] * 3
    # Each batch is one record with one id, as batch consume queues require.
    assert all("," not in each["msgIds"] + each["offsetMsgIds"] for each in sent)
    return [key for each in sent for key in each["keys"]]


def read(java: Java, cluster: Cluster, group: str, count: int) -> list[dict[str, Any]]:
    """All messages of the topic, as a new group receives them."""
    orders = {"namesrv": cluster.namesrv, "topic": TOPIC, "group": group}
    program = java.start("PullConsume", **orders, count=count, seconds=SECONDS)
    program.wait_event("done", SECONDS)
    return program.events("message")


@pytest.mark.requirement(
    "Store: Batch consume queues: one record and one id a batch, recovered from the log, read by "
    "the real broker"
)
def test_batches_are_read_one_by_one_and_the_real_broker_goes_on_with_their_queues(
    brokers: dict[str, Cluster], java: Java, mqadmin: Mqadmin
) -> None:
    keys: list[str] = []
    for step, name in enumerate(("ours", "java", "ours")):
        cluster = brokers[name]
        cluster.start()
        if step == 0:
            answer = mqadmin(
                *("updateTopic", "-n", cluster.namesrv, "-b", cluster.broker, "-t", TOPIC),
                *("-r", "2", "-w", "2", "-a", "+queue.type=BatchCQ"),
            )
            assert "success" in answer, answer
            one = java.produce(namesrv=cluster.namesrv, topic=TOPIC, prefix="single")
            keys += [each["key"] for each in one]
        keys += send_batches(java, cluster, f"step{step}")
        got = read(java, cluster, f"BG{step}", len(keys))
        assert sorted(each["key"] for each in got) == sorted(keys)
        assert all(each["body"] == each["key"] for each in got)
        for queue in range(2):
            offsets = sorted(each["offset"] for each in got if each["queue"] == queue)
            assert offsets == list(range(len(offsets)))
        cluster.stop_broker(kill=step == 0)
        cluster.stop()
