"""`aerobee dlq` against a broker: it lists and shows dead letters and sends them again."""

from __future__ import annotations

import pytest
from aerobee.client.blocking import Consumer, Message, Producer
from aerobee.testing.cluster import LocalCluster

from ...waiting import LONG
from ..command import Inside

SECONDS = LONG


def give_up(cluster: LocalCluster, topic: str, group: str, count: int = 1) -> list[str]:
    """A group gives up `count` messages of a topic; returns their ids."""
    with Producer(cluster.name_server) as producer:
        for number in range(count):
            producer.send(Message(topic, f"body {number}".encode(), keys=[f"k{number}"]))
    ids = []
    with Consumer(cluster.name_server, group=group, topics=[topic], start="earliest") as consumer:
        for _ in range(count):
            message = consumer.receive(SECONDS)
            assert message is not None
            ids.append(message.msg_id)
            message.nack(delay_level=-1)
    return ids


def test_groups_with_dead_letters_are_listed_and_their_letters_shown(
    cluster: LocalCluster, inside: Inside
) -> None:
    where = ("-n", cluster.name_server)
    ids = give_up(cluster, "bills", "payers", 3)
    rows = {row["group"]: row["messages"] for row in inside.objects("dlq", *where)}
    assert rows["payers"] == 3
    found = inside.objects("dlq", "show", "payers", *where)
    assert {one["id"] for one in found} == set(ids)
    assert {one["origin"] for one in found} == {"bills"}
    out = inside.output("dlq", "show", "payers", "--last", "1", *where)
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["ID", "TOPIC"]
    assert len(lines) == 2
    assert " bills " in lines[1]


def test_a_resent_dead_letter_reaches_only_its_group(cluster: LocalCluster, inside: Inside) -> None:
    first, _ = give_up(cluster, "posted", "readers", 2)
    words = ("dlq", "resend", "readers", "-n", cluster.name_server)
    code, out, error = inside(*words, first)
    assert (code, out, error) == (0, "sent 1 message to %RETRY%readers\n", "")
    stored = cluster.call(lambda: ends(cluster, "posted"))
    assert stored == 2  # no new messages for other groups
    with Consumer(cluster.name_server, group="readers", topics=["posted"]) as consumer:
        message = consumer.receive(SECONDS)
        assert message is not None
        assert (message.msg_id, message.topic, message.reconsume_times) == (first, "posted", 0)
        message.ack()


def test_all_dead_letters_can_be_sent_to_their_original_topic(
    cluster: LocalCluster, inside: Inside
) -> None:
    ids = give_up(cluster, "spread", "finders", 2)
    words = ("dlq", "resend", "finders", "--all", "--original", "-n", cluster.name_server)
    assert inside(*words) == (0, "sent 2 messages to spread\n", "")
    with Consumer(
        cluster.name_server, group="others", topics=["spread"], start="earliest"
    ) as consumer:
        got = [consumer.receive(SECONDS) for _ in range(4)]
    assert sorted(one.msg_id for one in got if one is not None) == sorted(ids * 2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show",), "which group? write: aerobee dlq show GROUP"),
        (("resend", "g"), "which messages? write: aerobee dlq resend g ID ID, or --all"),
        (("resend", "g", "id", "--all"), "which messages? write: aerobee dlq resend g ID ID"),
        (("show", "nobody"), "group nobody has no dead letters; `aerobee dlq` lists groups"),
    ],
)
def test_the_error_names_the_missing_argument_or_group(
    cluster: LocalCluster, inside: Inside, words: tuple[str, ...], says: str
) -> None:
    error = inside.refused("dlq", *words, "-n", cluster.name_server)
    assert error.startswith(f"aerobee dlq: {says}")


def test_an_id_without_a_dead_letter_is_named(cluster: LocalCluster, inside: Inside) -> None:
    give_up(cluster, "named", "namers")
    words = ("dlq", "resend", "namers", "A1", "-n", cluster.name_server)
    error = inside.refused(*words)
    assert error.startswith("aerobee dlq: group namers has no dead letter A1; `aerobee dlq show")


def ends(cluster: LocalCluster, topic: str) -> int:
    """The sum of the end offsets of a topic's queues."""
    broker = cluster.brokers[0]
    config = broker.topics.get(topic)
    assert config is not None
    return sum(broker.store.max_offset(topic, queue) for queue in range(config.read_queue_nums))
