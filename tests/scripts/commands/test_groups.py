"""`aerobee groups reset` against a broker; lists and lag are in test_cli.py."""

from datetime import datetime

import pytest
from aerobee.client.blocking import Admin, Consumer, Message, Producer
from aerobee.testing.cluster import LocalCluster

from ..command import Inside


@pytest.fixture
def group(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A group that has read 3 of the 3 messages of a topic of its name, in one queue."""
    name: str = request.node.name[:60].replace("[", "-").replace("]", "")
    with Admin(cluster.name_server) as admin:
        admin.create_topic(name, 1)
    with Producer(cluster.name_server) as producer:
        for _ in range(3):
            producer.send(Message(name, b"x"))
    with Consumer(cluster.name_server, group=name, topics=[name], start="earliest") as consumer:
        for _ in range(3):
            message = consumer.receive(20)
            assert message is not None
            message.ack()
    return name


def consumed(cluster: LocalCluster, group: str) -> int:
    """The group's offset as a broker keeps it."""
    return cluster.call(lambda: cluster.brokers[0].offsets.get(group, group, 0))


def test_a_group_is_reset_to_the_first_message_to_a_time_and_to_the_end(
    cluster: LocalCluster, inside: Inside, group: str
) -> None:
    reset = ("groups", "reset", group, "-n", cluster.name_server, "--to")
    assert consumed(cluster, group) == 3
    [row] = inside.objects(*reset, "earliest")
    assert row == {
        "topic": group,
        "broker": "broker-a",
        "queue": 0,
        "was": "3",
        "now": 0,
        "behind_by": 3,
    }
    assert consumed(cluster, group) == 0
    out = inside.output(*reset, "latest")
    assert out.splitlines()[1].split() == [group, "broker-a", "0", "0", "3", "0"]
    assert consumed(cluster, group) == 3
    store = cluster.brokers[0].store
    cluster.advance(minutes=1)
    with Producer(cluster.name_server) as producer:
        producer.send(Message(group, b"later"))
    moment = datetime.fromtimestamp(cluster.clock() / 1000 - 30).isoformat()
    inside.objects(*reset, moment)
    assert consumed(cluster, group) == 3
    assert cluster.call(lambda: store.max_offset(group, 0)) == 4


def test_a_reset_of_one_topic_leaves_the_others(
    cluster: LocalCluster, inside: Inside, group: str
) -> None:
    with Admin(cluster.name_server) as admin:
        admin.create_topic("beside", 1)
    reset = ("groups", "reset", group, "-n", cluster.name_server, "--to", "earliest")
    [row] = inside.objects(*reset, "--topic", "beside")
    assert (row["topic"], row["was"], row["now"]) == ("beside", "-", 0)
    assert consumed(cluster, group) == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("reset", "nobody", "--to", "earliest"), "there is no group nobody; `aerobee groups"),
        (("reset", "g"), "where to? write: aerobee groups reset g --to earliest, latest, or a"),
        (("delete", "g", "--to", "latest"), "--to and --topic are for reset; write: aerobee"),
        (("reset",), "which group? write: aerobee groups reset NAME"),
    ],
)
def test_what_is_missing_is_said(
    cluster: LocalCluster, inside: Inside, words: tuple[str, ...], says: str
) -> None:
    error = inside.refused("groups", *words, "-n", cluster.name_server)
    assert error.startswith(f"aerobee groups: {says}")
