"""Messages that wait, with Java's client: levels, times, recalls, retries, dead letters; and one
store with timers in the hands of both brokers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)
from aerobee.store.inspect.check import check

from ..waiting import SLOWNESS, wait_until
from .programs import SECONDS, Java, Mqadmin

SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "recallMessageEnable": "true",
    "timerMaxDelaySec": 86_400,
    "timerFlushIntervalMs": 1_000,  # the default
    "messageDelayLevel": "1s 5s 2s 2s 2s 2s",  # the first retry waits for level 3
}


def make(folder: Path, *, real: bool) -> AerobeeCluster | JavaCluster:
    """A name server and a broker on the store in this folder, not started."""
    if real:
        return JavaCluster(folder, SETTINGS, apart=True, flags=TEST_BROKER_FLAGS)
    return AerobeeCluster(folder, SETTINGS)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that allows recalls: ours, unless AEROBEE_INTEROP_SERVER says java."""
    folder = tmp_path_factory.mktemp("waiting")
    cluster = make(folder, real=os.environ.get("AEROBEE_INTEROP_SERVER") == "java")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def start(java: Java, cluster: Cluster, topic: str, group: str, **more: object) -> Reporter:
    program = java.start("Delayed", namesrv=cluster.namesrv, topic=topic, group=group, **more)
    program.wait_event("started", SECONDS)
    return program


def send(program: Reporter, order: str) -> dict[str, Any]:
    """The answer to a send."""
    sent: dict[str, Any] = program.ask(order, "sent", SECONDS)
    assert sent["status"] == "SEND_OK"
    return sent


def refusals(program: Reporter, order: str) -> str:
    return str(program.ask(order, "refused", SECONDS)["why"])


def wait_for_topic(mqadmin: Mqadmin, cluster: Cluster, topic: str) -> None:
    """Returns once the name server has a route of the topic."""
    mqadmin.until(
        lambda text: "readQueueNums" in text, "topicRoute", "-n", cluster.namesrv, "-t", topic
    )


def wait_for(program: Reporter, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(program.events("message")) >= count, lambda: program.events("message"))
    return program.events("message")


def test_levels_and_times_are_kept_and_carry_what_java_puts_on_them(
    waiting: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    mqadmin.create_topic(waiting, "Delayed", 4)
    program = start(java, waiting, "Delayed", "DelayedGroup")
    now_ms = time.time_ns() // 1_000_000
    orders = {
        "level 1 level-1": 1_000,
        "level 2 level-2": 5_000,
        "level 99 level-99": 2_000,
        "seconds 3 seconds": 3_000,
        "ms 2500 ms": 2_500,
        f"at {now_ms + 4_200} at": None,
        f"at {now_ms - 5_000} past": 0,
        "ms 0 zero": 0,
    }
    sent = {order: send(program, order) for order in orders}
    wanted = {order.split()[-1] for order in orders}
    wait_until(lambda: keys(program) >= wanted, lambda: keys(program))
    came = {message["key"]: message for message in program.events("message")}
    assert set(came) == wanted
    for order, wait_ms in orders.items():
        key = order.split()[-1]
        stored = came[key]["stored"]
        due_ms = now_ms + 4_200 if wait_ms is None else sent[order]["before"] + wait_ms
        assert due_ms <= stored, f"{key} is early"
        names = set(came[key]["properties"])
        is_timer = key in ("seconds", "ms", "at")
        assert ("handle" in sent[order]) == is_timer
        marks = {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID"}
        if is_timer:
            assert marks <= names
        assert ("DELAY" in names) == key.startswith("level")
        assert came[key]["topic"] == "Delayed"
    assert "message illegal" in refusals(program, "seconds 86401 too-far").lower()


def test_a_message_taken_back_does_not_come(waiting: Cluster, java: Java, mqadmin: Mqadmin) -> None:
    mqadmin.create_topic(waiting, "Recalled", 4)
    program = start(java, waiting, "Recalled", "RecalledGroup")
    kept = send(program, "seconds 6 kept")
    gone = send(program, "seconds 6 gone")
    assert program.ask(f"recall {gone['handle']}", "recalled", SECONDS)["id"] == gone["id"]
    assert "invalid" in refusals(program, "recall nonsense")
    message, *_ = wait_for(program, 1)
    assert message["key"] == "kept"
    assert "timestamp invalid" in refusals(program, f"recall {kept['handle']}")
    last = send(program, "seconds 2 last")
    assert "handle" in last
    wait_until(lambda: keys(program) == {"kept", "last"}, lambda: keys(program))


DEAD = "%DLQ%FailingGroup"


def test_tries_that_fail_come_again_and_become_dead_letters(
    waiting: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    mqadmin.create_topic(waiting, "Failing", 1)
    member = start(java, waiting, "Failing", "FailingGroup", fail=9, most=2)
    sent = send(member, "ms 100 hard")
    tries = wait_for(member, 3)
    assert [one["times"] for one in tries] == [0, 1, 2]
    assert {one["topic"] for one in tries} == {"Failing"}
    wait_for_topic(mqadmin, waiting, DEAD)
    reader = start(java, waiting, DEAD, "DeadLetterReaders")
    (dead,) = wait_for(reader, 1)
    assert (dead["key"], dead["times"], dead["id"]) == ("hard", 3, sent["id"])
    found = dead["properties"]
    assert found["RETRY_TOPIC"] == "Failing"
    assert len(found["ORIGIN_MESSAGE_ID"]) == 32
    assert len(member.events("message")) == 3


def test_of_a_batch_only_what_was_not_done_comes_again(
    waiting: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    mqadmin.create_topic(waiting, "Batched", 1)
    producer = start(java, waiting, "Other", "Batching")
    del producer
    first = java.start("Produce", namesrv=waiting.namesrv, topic="Batched", mode="batch", count=4)
    assert first.wait_event("done", SECONDS)["failed"] == 0
    member = start(java, waiting, "Batched", "BatchedGroup", batch=4, good=2)
    came = wait_for(member, 6)
    first_keys = [one["key"] for one in came if one["times"] == 0]
    again = {one["key"] for one in came if one["times"] == 1}
    assert len(first_keys) == 4
    assert again == set(first_keys[2:])


def test_a_group_in_order_gives_up_into_the_dead_letters_at_once(
    waiting: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    mqadmin.create_topic(waiting, "Ordered", 1)
    member = start(java, waiting, "Ordered", "OrderedGroup", orderly=True, fail=9, most=1)
    send(member, "now hard")
    wait_for(member, 2)
    topic = "%DLQ%OrderedGroup"
    wait_for_topic(mqadmin, waiting, topic)
    reader = start(java, waiting, topic, "OrderedReaders")
    (dead,) = wait_for(reader, 1)
    assert dead["key"] == "hard"
    assert (dead["properties"]["RETRY_TOPIC"], dead["properties"]["DELAY"]) == ("Ordered", "-1")


# How long the first broker's messages wait: until the second one surely stands.
SOON, LATER = round(25 * SLOWNESS), round(33 * SLOWNESS)
WAITS = {"one": SOON, "two": SOON, "three": LATER}


def test_the_real_broker_takes_over_the_timers_of_ours_after_a_kill(
    java: Java, tmp_path: Path
) -> None:
    topic = "TakenOver"
    first = second = make(tmp_path / "both", real=False)
    try:
        first.start()
        program = start(java, first, topic, "TakenOver")
        send(program, "now early")
        send(program, "ms 100 before")
        wait_until(lambda: keys(program) == {"early", "before"}, lambda: keys(program))
        sent = {key: send(program, f"seconds {wait} {key}") for key, wait in WAITS.items()}
        gone = send(program, f"seconds {WAITS['three']} gone")
        program.ask(f"recall {gone['handle']}", "recalled", SECONDS)
        first.stop_broker(kill=True)
        program.say("stop")
        first.stop()
        assert [one.line for one in check(first.store).findings if one.is_damage] == []
        second = make(tmp_path / "both", real=True)  # it overwrites the settings there
        second.start()
        reader = start(java, second, topic, "TakenOver")
        wait_until(lambda: keys(reader) >= set(WAITS), lambda: keys(reader))
        for message in reader.events("message"):
            key = message["key"]
            if key in WAITS:
                assert message["stored"] >= sent[key]["before"] + WAITS[key] * 1_000, "too early"
        # What was consumed just before the kill may come again; what was recalled may not.
        assert keys(reader) <= {*WAITS, "early", "before"}
    finally:
        first.stop()
        second.stop()


def keys(program: Reporter) -> set[str]:
    return {message["key"] for message in program.events("message")}
