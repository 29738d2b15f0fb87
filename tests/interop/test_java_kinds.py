"""Transactions, order, request and reply, traces, broadcasting: Java's clients see the same results
with our servers as with the real ones.

Each scenario runs against both clusters at the same time; then the results are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import (
    BROKER_NAME,
    CLUSTER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from .programs import SECONDS, Java, Mqadmin, side_by_side, wait_until

Outcome = dict[str, Any]
Story = Callable[[Cluster, Java, Mqadmin], Outcome]

# Checks every second, so that an unanswered check is given up within this test.
SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 20,
    "traceTopicEnable": "true",
}


@pytest.fixture(scope="module")
def both(
    java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Cluster]]:
    """Our cluster and the real one, with brokers that can be restarted."""
    ours = AerobeeCluster(tmp_path_factory.mktemp("aerobee-kinds"), SETTINGS)
    folder = tmp_path_factory.mktemp("java-kinds")
    real = JavaCluster(folder, SETTINGS, apart=True, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as started:
        yield started


@pytest.fixture(scope="module")
def tools(java: Java) -> tuple[Mqadmin, Mqadmin]:
    """One mqadmin for each cluster, since a mqadmin runs one command at a time."""
    programs = [java.start("Admin") for _ in range(2)]
    for program in programs:
        program.wait_event("started", SECONDS)
    return Mqadmin(programs[0]), Mqadmin(programs[1])


@pytest.fixture
def told(
    both: tuple[Cluster, Cluster], java: Java, tools: tuple[Mqadmin, Mqadmin]
) -> Callable[[Story], tuple[Outcome, Outcome]]:
    """Runs a scenario against both clusters at once; returns both results, ours first."""

    def tell(story: Story) -> tuple[Outcome, Outcome]:
        with ThreadPoolExecutor(2) as pool:
            ours, real = (
                pool.submit(story, cluster, java, admin)
                for cluster, admin in zip(both, tools, strict=True)
            )
            return ours.result(), real.result()

    return tell


def consumed(*members: Reporter) -> set[str]:
    return {message["key"] for member in members for message in member.events("message")}


def wait_consumed(wanted: set[str], *members: Reporter) -> None:
    wait_until(lambda: consumed(*members) >= wanted, lambda: sorted(wanted ^ consumed(*members)))


# --- transactions ---------------------------------------------------------------------------------


def story_of_transactions(cluster: Cluster, java: Java, mqadmin: Mqadmin) -> Outcome:
    mqadmin.create_topic(cluster, "Paid", 4)
    where = {"namesrv": cluster.namesrv, "topic": "Paid"}
    plan = "commit,rollback,unknown-commit,unknown-rollback,unknown-unknown"
    producer = java.start("Transact", **where, group="Payers", count=10, plan=plan)
    consumer = java.consume(**where, group="Books")
    producer.wait_event("done", SECONDS)
    open_ones = {f"t-{at}" for at in range(10) if at % 5 in (2, 3)}

    def checked() -> dict[str, dict[str, Any]]:
        return {event["key"]: event for event in producer.events("checked")}

    wait_until(lambda: checked().keys() >= open_ones, checked)
    wait_consumed({f"t-{at}" for at in range(10) if at % 5 in (0, 2)}, consumer)

    # The producer of these messages is killed before it is checked, and the broker is restarted.
    late = java.start("Transact", **where, group="Late", count=4, prefix="late", plan=plan[16:])
    late.wait_event("done", SECONDS)
    late.kill()
    cluster.stop_broker(kill=True)
    cluster.start_broker()
    heir = java.start("Transact", **where, group="Late", count=1, prefix="heir", plan="commit")
    wait_consumed({"late-0", "late-3", "heir-0"}, consumer)

    # The broker gives up a message that no producer answers for; it is found there by its key.
    given_up = mqadmin.until(
        lambda text: "CODE" not in text and "Exception" not in text,
        *("queryMsgByKey", "-n", cluster.namesrv, "-t", "TRANS_CHECK_MAX_TIME_TOPIC", "-k", "t-4"),
    )
    sent = [(e["key"], e["status"], e["state"]) for e in producer.events("sent")]
    heir.say("stop")
    return {
        "sent": sent,
        "same ids": all(e["transactionId"] == e["msgId"] for e in producer.events("sent")),
        # After a crash a broker may check a transaction that has already ended.
        "checked": {
            key: (e["answer"], e["topic"], e["body"])
            for key, e in checked().items()
            if key in open_ones
        },
        "heir was asked": sorted(
            {e["key"] for e in heir.events("checked") if e["key"].startswith("late")}
        ),
        "consumed": sorted(consumed(consumer)),
        "given up": len(given_up.splitlines()) > 1,
    }


@pytest.mark.smoke
def test_transactions_end_as_their_producers_say_also_across_restarts(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_transactions)
    assert ours == real
    assert ours["consumed"] == ["heir-0", "late-0", "late-3", "t-0", "t-2", "t-5", "t-7"]
    assert ours["checked"]["t-2"] == ("commit", "Paid", "t-2")
    assert ours["given up"]
    assert ours["same ids"]


# --- order ----------------------------------------------------------------------------------------


ORDERS = 8


def story_of_order(cluster: Cluster, java: Java, mqadmin: Mqadmin) -> Outcome:
    mqadmin.create_topic(cluster, "Orders", 4)
    where = {"namesrv": cluster.namesrv, "topic": "Orders"}
    joined = {**where, "group": "Clerks", "orderly": True}
    first = java.consume(**joined)
    # The clients determine how long a hand-over takes: send messages until it has happened.
    producer = java.start("Produce", **where, mode="ordered", orders=ORDERS, rate=60, more=True)
    wait_until(lambda: len(consumed(first)) > 60, first.tail)
    second = java.consume(**joined)
    # The first member releases two of its four queues, and the second locks them.
    wait_until(lambda: len(consumed(second)) > 60, second.tail)
    second.say("stop")
    second.wait_event("stopped", SECONDS)
    producer.say("stop")
    done = producer.wait_event("done", SECONDS)
    assert done["failed"] == 0
    wait_consumed({f"m-{at}" for at in range(done["count"])}, first, second)
    # After a hand-over the last messages may be redelivered. Each member sees increasing offsets,
    # and together the members see every message.
    backwards = 0
    for member in (first, second):
        newest = dict.fromkeys(range(ORDERS), -1)
        for message in member.events("message"):
            order, number = int(message["order"]), int(message["number"])
            backwards += number < newest[order]
            newest[order] = number
    queues = {(int(m["order"]) % 4, m["queue"]) for m in first.events("message")}
    return {"backwards": backwards, "queues": len(queues)}


def test_messages_stay_in_order_while_members_join_and_leave(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_order)
    assert ours == real
    assert ours == {"backwards": 0, "queues": 4}


# --- request and reply ----------------------------------------------------------------------------


def story_of_requests(cluster: Cluster, java: Java, mqadmin: Mqadmin) -> Outcome:
    mqadmin.create_topic(cluster, "Questions", 2)
    where = {"namesrv": cluster.namesrv, "topic": "Questions"}
    replier = java.start("Answer", **where)
    replier.wait_event("started", SECONDS)
    asker = java.start("Ask", **where, count=5)
    asker.wait_event("done", SECONDS)
    assert asker.events("failed") == []
    waiting = java.start("Ask", **where, count=1, sync=True, group="PG_sync")
    waiting.wait_event("done", SECONDS)
    wait_until(lambda: len(replier.events("answered")) >= 6, lambda: replier.lines)
    mqadmin.create_topic(cluster, "Unanswered", 1)
    # Java's client takes the same time for its send, and a busy machine starts it slowly.
    alone = java.start("Ask", namesrv=cluster.namesrv, topic="Unanswered", ttl=20_000)
    alone.wait_event("done", SECONDS)
    status = ("topicStatus", "-n", cluster.namesrv, "-t", f"{CLUSTER_NAME}_REPLY_TOPIC")

    def kept(text: str) -> list[int]:
        """How many replies each queue of the topic has kept."""
        return [int(line.split()[3]) for line in text.splitlines() if BROKER_NAME in line]

    mqadmin.until(lambda text: sum(kept(text)) >= 6, *status)
    return {
        "replied": sorted(
            {(e["key"], e["body"], e["topic"], e["type"]) for e in asker.events("replied")}
        ),
        "waiting": [(e["key"], e["error"]) for e in waiting.events("failed")],
        "alone": [(e["key"], e["error"]) for e in alone.events("failed")],
        "failed": replier.events("failed"),
        "answered": sorted(
            {(e["key"], e["status"], e["queue"]) for e in replier.events("answered")}
        ),
    }


def test_a_reply_reaches_its_requester(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_requests)
    assert ours == real
    topic = f"{CLUSTER_NAME}_REPLY_TOPIC"
    assert ours["replied"] == [(f"ask-{n}", f"re: ask-{n}", topic, "reply") for n in range(5)]
    assert ours["alone"] == [("ask-0", "RequestTimeoutException")]


# --- traces ---------------------------------------------------------------------------------------


def story_of_traces(cluster: Cluster, java: Java, mqadmin: Mqadmin) -> Outcome:
    mqadmin.create_topic(cluster, "Traced", 2)
    mqadmin.create_topic(cluster, "OurTraces", 1)
    outcome: Outcome = {}
    for kept_in in ("RMQ_SYS_TRACE_TOPIC", "OurTraces"):
        where = {"namesrv": cluster.namesrv, "topic": "Traced", "trace": True, "prefix": kept_in}
        traced = where if kept_in.startswith("RMQ") else {**where, "traceTopic": kept_in}
        consumer = java.consume(**traced, group=f"Readers-{kept_in}")
        # Both stay online meanwhile: clients send traces in batches, every few seconds.
        producer = java.start(
            "Produce", **traced, group=f"Writers-{kept_in}", count=1, tags="a", hold=True
        )
        sent = producer.wait_event("sent", SECONDS)
        wait_consumed({sent["key"]}, consumer)
        found = mqadmin.until(
            partial(has_both_ends, kept_in),
            *("queryMsgTraceById", "-n", cluster.namesrv, "-i", sent["msgId"], "-t", kept_in),
        )
        for program in (consumer, producer):
            program.say("stop")
        outcome[kept_in] = sorted(
            line.split()[:3] for line in found.splitlines() if kept_in in line
        )
        outcome[f"{kept_in} columns"] = [
            line.split() for line in found.splitlines() if line.startswith("#")
        ]
    return outcome


def has_both_ends(kept_in: str, text: str) -> bool:
    return f"Writers-{kept_in}" in text and f"Readers-{kept_in}" in text


def test_the_trace_of_a_message_is_found_by_its_id(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_traces)
    assert ours == real


# --- broadcasting ---------------------------------------------------------------------------------


def story_of_broadcasting(cluster: Cluster, java: Java, mqadmin: Mqadmin) -> Outcome:
    mqadmin.create_topic(cluster, "ForAll", 4)
    where = {"namesrv": cluster.namesrv, "topic": "ForAll"}
    joined = {**where, "group": "Everybody", "model": "broadcasting"}
    members = [java.consume(**joined), java.consume(**joined)]
    sent = {message["key"] for message in java.produce(**where, count=20)}
    for member in members:
        wait_consumed(sent, member)
    return {"each": [len(consumed(member)) for member in members]}


def test_every_member_of_a_broadcasting_group_gets_every_message(
    told: Callable[[Story], tuple[Outcome, Outcome]],
) -> None:
    ours, real = told(story_of_broadcasting)
    assert ours == real == {"each": [20, 20]}
