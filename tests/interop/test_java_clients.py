"""Java producers and consumers against our name server and broker."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import BROKER_NAME, Cluster

from ..waiting import wait_until
from .programs import SECONDS, Java, Mqadmin

QUEUES = 8


def consumed(*members: Reporter) -> list[dict[str, Any]]:
    return [message for member in members for message in member.events("message")]


def keys_of(messages: list[dict[str, Any]]) -> set[str]:
    return {message["key"] for message in messages}


def has_sent(producer: Reporter, enough: int) -> bool:
    return len(producer.events("sent")) > enough


def wait_for_shares(queues: int, *members: Reporter) -> None:
    """Waits until the members hold all queues between them, none twice, and each has some."""
    held: list[list[str]] = []

    def complete() -> bool:
        held[:] = [member.ask("queues", "queues", SECONDS)["queues"] for member in members]
        every = Counter(queue for share in held for queue in share)
        return all(held) and every == {f"{BROKER_NAME}:{queue}": 1 for queue in range(queues)}

    wait_until(complete, lambda: held)


@pytest.mark.smoke
def test_every_way_of_sending_reaches_a_group_whose_third_member_joins_and_leaves(
    server: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic, group = "EveryWay", "EveryWayGroup"
    mqadmin.create_topic(server, topic, QUEUES)
    joined = {"namesrv": server.namesrv, "topic": topic, "group": group}
    first, second = java.start("Consume", **joined), java.start("Consume", **joined)
    wait_for_shares(QUEUES, first, second)

    # A member comes and goes while this one sends; each mode goes on for four seconds,
    # the last until that has happened.
    producer = java.start(
        "Produce",
        namesrv=server.namesrv,
        topic=topic,
        mode="sync,async,oneway,batch,select",
        count=400,
        rate=100,
        more=True,
    )
    producer.wait_event("sent", SECONDS)
    third = java.consume(**joined)
    wait_for_shares(QUEUES, first, second, third)
    wait_until(lambda: bool(consumed(third)), lambda: "no message for the third member")
    third.say("stop")
    third.wait_event("stopped", SECONDS)
    wait_for_shares(QUEUES, first, second)
    producer.say("stop")
    done = producer.wait_event("done", SECONDS)
    assert done["failed"] == 0
    assert done["count"] >= 5 * 400

    sent = {message["key"]: message for message in producer.events("sent")}
    for batch in producer.events("batch"):
        for place, key in enumerate(batch["keys"]):
            sent[key] = {"queue": batch["queue"], "offset": batch["offset"] + place}
    assert len(sent) == done["count"]
    members = (first, second, third)
    wait_until(
        lambda: keys_of(consumed(*members)) >= set(sent),
        lambda: sorted(set(sent) ^ keys_of(consumed(*members))),
    )

    found: dict[tuple[int, int], str] = {}
    for message in consumed(*members):
        at = (message["queue"], message["offset"])
        assert found.setdefault(at, message["key"]) == message["key"]
        assert message["body"] == message["key"]
        assert message["number"] == message["key"].rpartition("-")[2]
        receipt = sent[message["key"]]
        if "offset" in receipt:  # a oneway send has no answer
            assert at == (receipt["queue"], receipt["offset"])
        if "msgId" in receipt:  # a broker gives all messages of a batch the id of the batch
            assert message["msgId"] == receipt["msgId"]
    for queue in range(QUEUES):
        offsets = sorted(offset for where, offset in found if where == queue)
        assert offsets == list(range(len(offsets))), f"queue {queue} has gaps"
    assert len(found) == len(sent)


def test_a_member_gets_the_tags_it_asked_for_and_no_other(
    server: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic = "Tagged"
    mqadmin.create_topic(server, topic, 4)
    where = {"namesrv": server.namesrv, "topic": topic}
    # Aa and BB have the same Java hash code: the consume queue alone cannot tell them apart.
    sent = java.produce(**where, tags="Aa,BB,other", count=90)
    wanted = {message["key"] for number, message in enumerate(sent) if number % 3 != 1}
    some = java.consume(**where, group="SomeTags", tags="Aa||other")
    every = java.consume(**where, group="EveryTag")
    wait_until(lambda: keys_of(consumed(every)) >= keys_of(sent), lambda: consumed(every))
    wait_until(lambda: keys_of(consumed(some)) >= wanted, lambda: consumed(some))
    assert keys_of(consumed(some)) == wanted
    assert {message["tag"] for message in consumed(some)} == {"Aa", "other"}


@pytest.mark.smoke
def test_a_lite_pull_consumer_reads_all_and_goes_on_where_it_committed(
    server: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic = "LitePulled"
    mqadmin.create_topic(server, topic, 4)
    where = {"namesrv": server.namesrv, "topic": topic}
    sent = java.produce(**where, count=40)
    reader = java.start("PullConsume", **where, count=40)
    assert reader.wait_event("done", SECONDS)["count"] == 40
    assert keys_of(consumed(reader)) == keys_of(sent)
    more = java.produce(**where, count=5, prefix="more")
    reader = java.start("PullConsume", **where, count=5)
    assert reader.wait_event("done", SECONDS)["count"] == 5
    assert keys_of(consumed(reader)) == keys_of(more)


def test_a_topic_is_created_by_the_first_message(server: Cluster, java: Java) -> None:
    where = {"namesrv": server.namesrv, "topic": "CreatedByTheFirstMessage"}
    sent = java.produce(**where, count=8)
    assert {message["queue"] for message in sent} == {0, 1, 2, 3}
    member = java.consume(**where, group="FirstMessageGroup")
    wait_until(lambda: keys_of(consumed(member)) >= keys_of(sent), lambda: consumed(member))


def test_a_message_that_fails_comes_again(server: Cluster, java: Java, mqadmin: Mqadmin) -> None:
    topic = "TriedAgain"
    mqadmin.create_topic(server, topic, 4)
    where = {"namesrv": server.namesrv, "topic": topic}
    member = java.consume(**where, group="TriedAgainGroup", fail=1)
    java.produce(**where, count=1)
    # The first later try is ten seconds away: delay level 3.
    wait_until(lambda: consumed(member)[-1:] and consumed(member)[-1]["times"], member.tail)
    first, *_, second = consumed(member)
    assert (first["times"], second["times"]) == (0, 1)
    assert first["key"] == second["key"]
    assert second["topic"] == topic


@pytest.mark.smoke
def test_no_acknowledged_message_is_lost_when_the_broker_stops_and_when_it_is_killed(
    server: Cluster, java: Java, mqadmin: Mqadmin
) -> None:
    topic, group = "Restarted", "RestartedGroup"
    mqadmin.create_topic(server, topic, QUEUES)
    joined = {"namesrv": server.namesrv, "topic": topic, "group": group}
    members = (java.start("Consume", **joined), java.start("Consume", **joined))
    wait_for_shares(QUEUES, *members)
    producer = java.start(
        "Produce", namesrv=server.namesrv, topic=topic, insist=True, count=3000, rate=200
    )
    for enough, kill in ((300, False), (1200, True)):
        wait_until(partial(has_sent, producer, enough), producer.tail)
        server.stop_broker(kill=kill)
        server.start_broker()
    assert producer.wait_event("done", SECONDS)["failed"] == 0
    sent = keys_of(producer.events("sent"))
    assert len(sent) == 3000
    wait_until(
        lambda: keys_of(consumed(*members)) >= sent,
        lambda: sorted(sent - keys_of(consumed(*members))),
    )
