"""Our broker and the real one serve one store directory alternately, never at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness.clusters import TEST_BROKER_FLAGS, AerobeeCluster, Cluster, JavaCluster
from aerobee.protocol.codec import fastjson

from ..waiting import wait_until
from .programs import SECONDS, Java, Mqadmin

TOPIC, GROUP = "InTurn", "InTurnGroup"
BATCHES = "Batches"  # a topic with batch consume queues
COUNT = 30
SETTINGS: dict[str, str | int] = {
    "flushConsumerOffsetInterval": 100,
    "flushDelayOffsetInterval": 100,
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
}
TURNS = ("ours", "java", "ours")  # each is killed


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


def offset_table(store: Path, name: str) -> dict[Any, Any]:
    """The contents of an offset file on the disk."""
    try:
        table = fastjson.parse((store / "config" / name).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}  # the broker is writing the file
    found = table["offsetTable"]
    assert isinstance(found, dict)
    return found


def consumed(store: Path, topic: str) -> int:
    """How many messages of a topic the group has consumed, according to the file on the disk."""
    offsets: dict[str, int] = offset_table(store, "consumerOffset.json").get(f"{topic}@{GROUP}", {})
    return sum(offsets.values())


def repeated(store: Path) -> tuple[int, int]:
    """How many messages were redelivered, and how many of them were consumed, on the disk."""
    delivered = sum(offset_table(store, "delayOffset.json").values())
    return delivered, consumed(store, f"%RETRY%{GROUP}")


def consume(
    java: Java, cluster: Cluster, before: list[dict[str, Any]], store: Path, wanted: int, fail: int
) -> list[dict[str, Any]]:
    """All messages of a group, `before` included, once it has received `wanted` different ones.

    The member returns the first `fail` of them, for redelivery after 10 s.
    """
    member = java.start(
        "Consume",
        namesrv=cluster.namesrv,
        topic=TOPIC,
        group=GROUP,
        **({"fail": 1} if fail else {}),
    )

    def seen() -> list[dict[str, Any]]:
        return before + member.events("message")

    def is_complete() -> bool:
        is_repeated = fail or any(each["times"] for each in seen())
        return len(set(map(key, seen()))) == wanted and bool(is_repeated)

    wait_until(is_complete, lambda: Counter(map(key, seen())))
    wait_until(lambda: consumed(store, TOPIC) == wanted, lambda: consumed(store, TOPIC))
    member.say("stop")
    member.wait_event("stopped", SECONDS)
    if any(each["times"] for each in seen()):  # a broker killed too early delivers again
        wait_until(lambda: repeated(store) == (1, 1), lambda: repeated(store))
    return seen()


def send_batches(java: Java, cluster: Cluster, prefix: str) -> list[str]:
    """Sends three batches of eight; returns the keys of their messages."""
    orders = {"namesrv": cluster.namesrv, "topic": BATCHES, "mode": "batch", "batch": 8}
    program = java.start("Produce", **orders, count=24, prefix=prefix)
    assert program.wait_event("done", SECONDS)["failed"] == 0
    sent = program.events("batch")
    assert [each["status"] for each in sent] == ["SEND_OK"] * 3
    # Each batch is one record with one id, as batch consume queues require.
    assert all("," not in each["msgIds"] + each["offsetMsgIds"] for each in sent)
    return [key for each in sent for key in each["keys"]]


def read(java: Java, cluster: Cluster, group: str, count: int) -> list[dict[str, Any]]:
    """All messages of the topic, as a new group receives them."""
    orders = {"namesrv": cluster.namesrv, "topic": BATCHES, "group": group}
    program = java.start("PullConsume", **orders, count=count, seconds=SECONDS)
    program.wait_event("done", SECONDS)
    return program.events("message")


def test_a_group_goes_on_from_its_stored_offset_and_batches_are_read_one_by_one_on_either_broker(
    brokers: dict[str, Cluster], java: Java, mqadmin: Mqadmin, tmp_path: Path
) -> None:
    sent: list[dict[str, Any]] = []
    got: list[dict[str, Any]] = []
    batched: list[str] = []
    for step, name in enumerate(TURNS):
        cluster = brokers[name]
        cluster.start()
        orders = {"namesrv": cluster.namesrv, "topic": TOPIC, "count": COUNT}
        if step == 0:
            mqadmin.create_topic(cluster, BATCHES, 2, "+queue.type=BatchCQ")
            (one,) = java.produce(namesrv=cluster.namesrv, topic=BATCHES, prefix="single")
            batched.append(one["key"])
            sent += java.produce(**orders, prefix="first")
        # The next broker redelivers the message that fails on the first delivery.
        got = consume(java, cluster, got, tmp_path / "store", len(sent), fail=int(step == 0))
        assert set(map(key, got)) == set(map(key, sent))
        batched += send_batches(java, cluster, f"step{step}")
        check_batches(read(java, cluster, f"Readers{step}", len(batched)), batched)
        if step < len(TURNS) - 1:
            sent += java.produce(**orders, prefix=f"step{step}")
        cluster.stop_broker(kill=True)
        cluster.stop()
    times = Counter(map(key, got))
    [failed] = [name for name, count in times.items() if count > 1]
    assert [each["times"] for each in got if key(each) == failed] == [0, 1]
    assert len(times) == len(sent) == COUNT * len(TURNS)
    for queue in range(4):
        offsets = [each["offset"] for each in sent if each["queue"] == queue]
        assert offsets == list(range(len(offsets)))


def check_batches(got: list[dict[str, Any]], keys: list[str]) -> None:
    assert sorted(map(key, got)) == sorted(keys)
    assert all(each["body"] == each["key"] for each in got)
    for queue in range(2):
        offsets = sorted(each["offset"] for each in got if each["queue"] == queue)
        assert offsets == list(range(len(offsets)))


def key(message: dict[str, Any]) -> str:
    found = message["key"]
    assert isinstance(found, str)
    return found
