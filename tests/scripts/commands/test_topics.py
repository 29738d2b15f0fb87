"""`aerobee topics show` against a broker; the other actions are in test_cli.py."""

import pytest
from aerobee.client.blocking import Admin, Consumer, Message, Producer
from aerobee.testing.cluster import LocalCluster

from ..command import here, objects


def test_a_topic_is_shown_with_its_settings_queues_and_groups(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-n", cluster.name_server)
    with Admin(cluster.name_server) as admin:
        admin.create_topic("shown", 2, order=True, attributes={"message.type": "FIFO"})
    with Producer(cluster.name_server) as producer:
        queues = producer.queues("shown")
        for queue in (queues[0], queues[0], queues[1]):
            producer.send(Message("shown", b"x"), queue=queue)
    with Consumer(
        cluster.name_server, group="showers", topics=["shown"], start="earliest"
    ) as consumer:
        for _ in range(3):
            message = consumer.receive(20)
            assert message is not None
            message.ack()
        [found] = objects(capsys, "topics", "show", "shown", *where)
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

    code, out, error = here(capsys, "topics", "show", "shown", *where)
    assert (code, error) == (0, "")
    tables = [part.splitlines() for part in out.split("\n\n")]
    assert [table[0].split()[0] for table in tables] == ["BROKER", "BROKER", "GROUP"]
    assert tables[0][1].split() == ["broker-a", "FIFO", "6", "(read,", "write)", "yes", "2", "2"]
    assert tables[2][1].split()[:2] == ["showers", "0"]  # it has left


def test_a_topic_that_nobody_reads_or_that_is_not_there(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-n", cluster.name_server)
    with Admin(cluster.name_server) as admin:
        admin.create_topic("unread", 1, perm=4)
    code, out, _ = here(capsys, "topics", "show", "unread", *where)
    assert code == 0
    assert "4 (read)" in out
    assert out.endswith("\nno group reads it, or has read it\n")
    code, out, error = here(capsys, "topics", "show", "absent", *where)
    assert (code, out) == (1, "")
    assert error.startswith("aerobee topics: there is no topic absent; `aerobee topics --all`")
    code, out, error = here(capsys, "topics", "show", *where)
    assert error == "aerobee topics: which topic? write: aerobee topics show NAME\n"


def test_a_topic_gets_its_retention_when_it_is_made_and_later(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-n", cluster.name_server)
    make = ("topics", "create", "kept", *where)
    assert here(capsys, *make, "--queues", "2", "--retention-ms", "1000")[0] == 0
    _, out, _ = here(capsys, *make, "--retention-bytes", "5", "--retention-ms", "7")
    assert out == "topic kept has retention.ms=7, retention.bytes=5 now\n"
    with Admin(cluster.name_server) as admin:
        [config] = admin.topic_config("kept").values()
    assert config.attributes == {"retention.ms": "7", "retention.bytes": "5"}
    assert (config.read_queue_nums, config.write_queue_nums) == (2, 2)
    code, out, error = here(capsys, *make, "--retention-ms", "0")
    assert (code, out) == (1, "")
    assert "attribute retention.ms is '0', but must be a whole number of ms from 1" in error
    assert (
        "write: aerobee topics create NAME --retention-ms N"
        in here(capsys, "topics", "list", "--retention-ms", "5", *where)[2]
    )
