"""Static topics with the real tools: mqadmin creates one and moves its queues from our broker to
the real one and back, while the real client sends and consumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness import java_side
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from .programs import SECONDS, Java, Mqadmin, wait_until

BLOCK = 10_000  # the logical offsets of a queue's next broker begin at a multiple of this
LOGICAL = "__syslo__global__"
QUEUES = 2


@dataclass
class Two:
    """The brokers "first" and "second", registered with one name server."""

    first: Cluster
    second: Cluster
    mqadmin: Mqadmin

    @property
    def namesrv(self) -> str:
        return self.first.namesrv

    def tell(self, command: str, *words: str) -> str:
        return self.mqadmin(command, "-n", self.namesrv, *words)

    def create(self, topic: str, *where: str) -> None:
        """Runs updateStaticTopic, once both brokers are registered."""
        self.mqadmin.until(
            lambda text: "first" in text and "second" in text, "clusterList", "-n", self.namesrv
        )
        told = self.tell("updateStaticTopic", *where, "-t", topic, "-qn", str(QUEUES))
        assert told.rstrip().endswith(".after"), told

    def move(self, topic: str, broker: str) -> None:
        """Runs remappingStaticTopic: moves all queues to this broker."""
        told = self.tell("remappingStaticTopic", "-b", broker, "-t", topic)
        assert told.rstrip().endswith(".after"), told  # the file with the new mapping


@pytest.fixture
def two(java_is_here: None, tmp_path: Path) -> Iterator[Two]:
    # The commands leave a file with each mapping in the temporary directory.
    tools = Java(tmp_path, flags=(*java_side.SHORT_LIVED, f"-Djava.io.tmpdir={tmp_path}"))
    first = AerobeeCluster(tmp_path / "1", SMALL_FILES | {"brokerName": "first"})
    names: dict[str, str | int] = {"brokerName": "second", "namesrvAddr": first.namesrv}
    second = JavaCluster(tmp_path / "2", SMALL_FILES | names, flags=TEST_BROKER_FLAGS)
    try:
        first.start()
        second.start_broker()
        yield Two(first, second, Mqadmin(tools.start("Admin")))
    finally:
        tools.stop()
        second.stop()
        first.stop()


def wait_for_more(consumer: Reporter) -> None:
    """Waits until the consumer has received 50 more messages."""
    seen = len(messages(consumer))
    wait_until(lambda: len(messages(consumer)) > seen + 50, lambda: consumer.lines)


def messages(consumer: Reporter) -> list[dict[str, Any]]:
    return consumer.events("message")


def test_real_clients_see_each_message_while_the_queues_move(two: Two, java: Java) -> None:
    topic = "Moving"
    two.create(topic, "-b", "first")
    group = {"namesrv": two.namesrv, "topic": topic, "routes": 200}
    consumer = java.consume(**group, group="Followers", orderly=True)
    sending = java.start("Produce", **group, rate=50, more=True, insist=True)
    for broker in ("second", "first"):
        wait_for_more(consumer)
        two.move(topic, broker)
    wait_for_more(consumer)
    sending.say("enough")
    sent = {each["key"] for each in _all_sent(sending)}
    wait_until(lambda: {m["key"] for m in messages(consumer)} >= sent, lambda: consumer.lines)
    _check(messages(consumer), sent)
    # A group that starts later reads all messages, too, from the brokers that store them.
    late = java.consume(**group, group="Latecomers")
    wait_until(lambda: {m["key"] for m in messages(late)} >= sent, lambda: late.lines)
    _check(messages(late), sent)


def _all_sent(sending: Reporter) -> list[dict[str, Any]]:
    done = sending.wait_event("done", SECONDS)
    assert done["failed"] == 0, sending.events("failed")
    return sending.events("sent")


def _check(found: list[dict[str, Any]], sent: set[str]) -> None:
    """Each message is there, at a place of its own, in three blocks of each logical queue."""
    assert {each["broker"] for each in found} == {LOGICAL}
    places: dict[tuple[int, int], str] = {}
    for each in found:
        assert places.setdefault((each["queue"], each["offset"]), each["key"]) == each["key"]
    assert set(places.values()) == sent
    blocks = {(queue, offset // BLOCK) for queue, offset in places}
    assert blocks == {(queue, block) for queue in range(QUEUES) for block in range(3)}
