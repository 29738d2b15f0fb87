"""`aerobee topics show`, `create` and `shrink` against brokers; the rest is in test_cli.py."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aerobee.client import Admin as AsyncAdmin
from aerobee.client.admin.shrinking import Unread
from aerobee.client.blocking import Admin, Consumer, Message, Producer
from aerobee.scripts.commands.topics import _waiting, declare, topics
from aerobee.testing.cluster import LocalCluster

from ...waiting import until
from ..command import Inside


def sizes(cluster: LocalCluster, topic: str) -> dict[str, tuple[int, int, int, bool]]:
    """Write queues, read queues, permission and order of a topic, by broker name."""
    with Admin(cluster.name_server) as admin:
        return {
            name: (one.write_queue_nums, one.read_queue_nums, one.perm, one.order)
            for name, one in admin.topic_config(topic).items()
        }


def fill(cluster: LocalCluster, topic: str) -> None:
    """A message in each queue."""
    with Producer(cluster.name_server) as producer:
        for queue in producer.queues(topic):
            producer.send(Message(topic, b"x"), queue=queue)


@contextmanager
def reading(cluster: LocalCluster, group: str, topic: str, messages: int) -> Iterator[None]:
    """A member of the group that has acknowledged this many messages of the topic."""
    where = cluster.name_server
    with Consumer(where, group=group, topics=[topic], start="earliest") as consumer:
        for _ in range(messages):
            message = consumer.receive(20)
            assert message is not None
            message.ack()
        yield


def test_a_topic_is_shown_with_its_settings_queues_and_groups(
    cluster: LocalCluster, inside: Inside
) -> None:
    where = ("-n", cluster.name_server)
    with Admin(cluster.name_server) as admin:
        admin.create_topic("shown", 2, order=True, attributes={"message.type": "FIFO"})
    with Producer(cluster.name_server) as producer:
        queues = producer.queues("shown")
        for queue in (queues[0], queues[0], queues[1]):
            producer.send(Message("shown", b"x"), queue=queue)
    with reading(cluster, "showers", "shown", 3):
        [found] = inside.objects("topics", "show", "shown", *where)
    assert found["topic"] == "shown"
    assert found["brokers"] == [
        {
            "broker": "broker-a",
            "type": "FIFO",
            "permission": "6 (read, write)",
            "ordered": "yes",
            "read_queues": 2,
            "write_queues": 2,
        }
    ]
    bounds = [(one["queue"], one["first"], one["end"], one["messages"]) for one in found["queues"]]
    assert bounds == [(0, 0, 2, 2), (1, 0, 1, 1)]
    [group] = found["groups"]
    assert (group["group"], group["members"]) == ("showers", 1)

    out = inside.output("topics", "show", "shown", *where)
    tables = [part.splitlines() for part in out.split("\n\n")]
    assert [table[0].split()[0] for table in tables] == ["BROKER", "BROKER", "GROUP"]
    assert tables[0][1].split() == ["broker-a", "FIFO", "6", "(read,", "write)", "yes", "2", "2"]
    assert tables[2][1].split()[:2] == ["showers", "0"]  # it has left


def test_a_topic_that_nobody_reads_or_that_is_not_there(
    cluster: LocalCluster, inside: Inside
) -> None:
    where = ("-n", cluster.name_server)
    with Admin(cluster.name_server) as admin:
        admin.create_topic("unread", 1, perm=4)
    code, out, _ = inside("topics", "show", "unread", *where)
    assert code == 0
    assert "4 (read)" in out
    assert out.endswith("\nno group reads it, or has read it\n")
    error = inside.refused("topics", "show", "absent", *where)
    assert error.startswith("aerobee topics: there is no topic absent; `aerobee topics --all`")
    code, out, error = inside("topics", "show", *where)
    assert error == "aerobee topics: which topic? write: aerobee topics show NAME\n"


def test_a_topic_gets_its_retention_when_it_is_made_and_later(
    cluster: LocalCluster, inside: Inside
) -> None:
    where = ("-n", cluster.name_server)
    make = ("topics", "create", "kept", *where)
    assert inside(*make, "--queues", "2", "--retention-ms", "1000")[0] == 0
    _, out, _ = inside(*make, "--retention-bytes", "5", "--retention-ms", "7")
    assert out == "topic kept has retention.ms=7, retention.bytes=5 now\n"
    with Admin(cluster.name_server) as admin:
        [config] = admin.topic_config("kept").values()
    assert config.attributes == {"retention.ms": "7", "retention.bytes": "5"}
    assert (config.read_queue_nums, config.write_queue_nums) == (2, 2)
    assert (
        "attribute retention.ms is '0', but must be a whole number of ms from 1"
        in inside.refused(*make, "--retention-ms", "0")
    )
    assert (
        "list takes no --retention-ms, which is for create; leave it out"
        in inside("topics", "list", "--retention-ms", "5", *where)[2]
    )


def test_a_topic_is_made_on_one_broker_or_the_brokers_of_one_cluster(inside: Inside) -> None:
    with LocalCluster(brokers=2) as cluster:
        where = ("-n", cluster.name_server)
        _, out, error = inside("topics", "create", "one", "--broker", "broker-b", *where)
        assert (out, error) == ("created topic one with 4 queues on broker broker-b\n", "")
        assert list(sizes(cluster, "one")) == ["broker-b"]
        _, out, _ = inside("topics", "create", "all", "--cluster", "DefaultCluster", *where)
        assert out == "created topic all with 4 queues on each broker of cluster DefaultCluster\n"
        assert list(sizes(cluster, "all")) == ["broker-a", "broker-b"]
        code, _, error = inside("topics", "create", "no", "--broker", "broker-c", *where)
        assert (code, "no master broker (cluster any, broker broker-c)" in error) == (1, True)

        change = ("topics", "create", "all", "--broker", "broker-a", "--queues", "2", *where)
        assert inside(*change)[1] == "topic all has 2 queues on broker broker-a now\n"
        found = sizes(cluster, "all")
        assert (found["broker-a"][:2], found["broker-b"][:2]) == ((2, 2), (4, 4))
        more = ("topics", "create", "one", "--broker", "broker-a", *where)  # it is on b alone
        assert inside(*more)[1] == "created topic one with 4 queues on broker broker-a\n"


def test_a_topic_gets_another_number_of_queues_to_read_and_keeps_the_rest(
    cluster: LocalCluster, inside: Inside
) -> None:
    make = ("topics", "create", "sized", "-n", cluster.name_server)
    _, out, error = inside(*make, "--queues", "4", "--read-queues", "6")
    assert error == ""
    assert out == "created topic sized with 4 queues, 6 to read, on each broker\n"
    assert inside(*make, "--retention-ms", "9")[1] == "topic sized has retention.ms=9 now\n"
    assert sizes(cluster, "sized") == {"broker-a": (4, 6, 6, False)}
    with Admin(cluster.name_server) as admin:
        admin.create_topic("sized", 4, read_queues=6, perm=4, order=True)
    _, out, _ = inside(*make, "--read-queues", "5")
    assert out == "topic sized has 5 queues to read on each broker now\n"
    assert sizes(cluster, "sized") == {"broker-a": (4, 5, 4, True)}
    assert inside(*make, "--queues", "3")[1] == "topic sized has 3 queues on each broker now\n"
    assert sizes(cluster, "sized") == {"broker-a": (3, 3, 4, True)}


def test_a_topic_shrinks_and_says_what_it_waits_for(cluster: LocalCluster, inside: Inside) -> None:
    where = ("-n", cluster.name_server)
    with Admin(cluster.name_server) as admin:
        admin.create_topic("wide", 4)
    fill(cluster, "wide")
    with reading(cluster, "wide-readers", "wide", 4):
        pass
    fill(cluster, "wide")
    shrink = ("topics", "shrink", "wide", "--queues", "2", "--settle", "0", *where)
    code, out, error = inside(*shrink, "--timeout", "0")
    held = "2 messages of group wide-readers (no member)"
    assert code == 1
    assert out.splitlines() == [
        "topic wide takes messages in 2 queues on each broker now; the others are read to their "
        "end, which is waited for, 0 s at least",
        f"waiting for {held}",
        "  nobody reads for group wide-readers: start it, or have it skip what is there: aerobee "
        "groups reset wide-readers --topic wide --to latest",
    ]
    assert error == (
        f"aerobee topics: topic wide is not ready within 0 s: {held}, in the queues from 2 on; it "
        "takes messages in 2 queues and is read in 4, and the same again goes on\n"
    )
    inside("groups", "reset", "wide-readers", "--topic", "wide", "--to", "latest", *where)
    out = inside.output(*shrink)
    assert out.splitlines()[1:] == [
        "nothing is left in them; waiting for producers with an older route",
        "topic wide has 2 queues on each broker now",
    ]
    assert sizes(cluster, "wide") == {"broker-a": (2, 2, 6, False)}


def test_a_topic_that_can_not_shrink_is_left_alone(cluster: LocalCluster, inside: Inside) -> None:
    with Admin(cluster.name_server) as admin:
        admin.create_topic("lonely", 4)
    fill(cluster, "lonely")
    shrink = ("topics", "shrink", "lonely", "-n", cluster.name_server)
    for words, said in (
        ([], "to how many? write: aerobee topics shrink lonely --queues N"),
        (["--queues", "0"], "queues is 0; give 1 or more"),
        (["--queues", "5"], "topic lonely has 4 queues on broker-a, and 5 is not less"),
        (["--queues", "4"], "topic lonely has 4 queues on broker-a already, and 4 is not less"),
        (["--queues", "1"], "no group reads topic lonely or has read it: its 3 messages in the"),
        (["--queues", "1", "--broker", "a"], "shrink takes no --broker, which is for create;"),
    ):
        assert said in inside.refused(*shrink, *words)
    assert sizes(cluster, "lonely") == {"broker-a": (4, 4, 6, False)}
    code, _, _ = inside(*shrink, "--queues", "1", "--settle", "0", "--force")
    assert (code, sizes(cluster, "lonely")) == (0, {"broker-a": (1, 1, 6, False)})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("delete", "--force"), "delete takes no --force, which is for shrink"),
        (("create", "--force"), "create takes no --force, which is for shrink"),
        (("delete", "--queues", "1"), "delete takes no --queues, which is for create and shrink"),
        (("show", "--retention-ms", "1"), "show takes no --retention-ms, which is for create"),
    ],
)
def test_an_option_of_another_action_is_refused_and_no_other_action_named_to_be_done(
    cluster: LocalCluster, inside: Inside, words: tuple[str, ...], said: str
) -> None:
    action, *options = words
    refused = inside.refused("topics", action, "untouched", *options, "-n", cluster.name_server)
    assert refused == f"aerobee topics: {said}; leave it out"


async def test_an_interrupted_shrink_says_how_to_go_on(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    declare("topics", parser)
    options = parser.parse_args(["shrink", "begun", "--queues", "1"])
    async with AsyncAdmin(cluster.name_server) as admin:
        await admin.create_topic("begun", 4)
        running = asyncio.create_task(topics(admin, options))
        await until(lambda: "nothing is left" in capsys.readouterr().out)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        [config] = (await admin.topic_config("begun")).values()
        assert (config.write_queue_nums, config.read_queue_nums) == (1, 4)
    assert capsys.readouterr().err == (
        "topic begun is left as it is: it takes messages in 1 queues, and is read in all; go on "
        "with: aerobee topics shrink begun --queues 1\n"
    )


def test_a_group_with_members_needs_no_advice() -> None:
    text = _waiting("t", [Unread("g", 2, 1), Unread("h", 1, 3)])
    assert text == "waiting for 1 message of group g (2 members), 3 messages of group h (1 member)"
