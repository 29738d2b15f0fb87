"""`aerobee message` against a broker: by both ids, with and without the topic."""

import pytest
from aerobee.client.blocking import Message, Producer
from aerobee.scripts.commands import messages
from aerobee.testing.cluster import LocalCluster

from ..command import Inside


def test_a_message_is_found_by_either_of_its_ids(cluster: LocalCluster, inside: Inside) -> None:
    where = ("-n", cluster.name_server)
    with Producer(cluster.name_server) as producer:
        told = Message("found", "hellö\x1b".encode(), tags="t", keys=["k"], properties={"p": "1"})
        receipt = producer.send(told)
    [by_sender] = inside.objects("message", receipt.msg_id, *where)
    [by_place] = inside.objects("message", receipt.offset_msg_id, *where)
    assert by_sender == by_place
    assert by_sender["id"] == receipt.msg_id
    assert by_sender["offset_id"] == receipt.offset_msg_id
    assert (by_sender["body"], by_sender["properties"]) == ("hellö\x1b", {"p": "1"})
    assert by_sender["sender"].startswith("127.0.0.1:")
    out = inside.output("message", receipt.msg_id, "--topic", "found", *where)
    lines = dict(line.split(maxsplit=1) for line in out.partition("\n\n")[0].splitlines())
    assert (lines["topic"], lines["keys"], lines["properties"]) == ("found", "k", "p=1")
    assert out.endswith("\n\nhellö\\x1b\n")


def test_an_id_that_nobody_has_is_told_with_where_it_was_looked_for(
    cluster: LocalCluster, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-n", cluster.name_server)
    with Producer(cluster.name_server) as producer:
        place = producer.send(Message("found", b"x")).offset_msg_id
    assert f"message {'0' * 32} is not in topic found (any more)" in inside.refused(
        "message", "0" * 32, *where, "--topic", "found"
    )
    assert "is not in 1 topic of users (any more)" in inside("message", "0" * 32, *where)[2]
    code, _, error = inside("message", f"{place[:16]}{'7' * 16}", *where)
    assert (code, f"{place[:16]}{'7' * 16} is not there (any more): " in error) == (1, True)
    code, _, error = inside("message", "xyz", *where)
    assert (code, "message id 'xyz' has 3 characters" in error) == (1, True)
    monkeypatch.setattr(messages, "TOPICS_MAX", 0)
    code, _, error = inside("message", "0" * 32, *where)
    assert "the limit for looking through all is 0; say in which it is with --topic" in error


@pytest.mark.parametrize(
    ("name", "bind_address", "shown"),
    [
        ("localhost", "127.0.0.1", "localhost"),
        ("::1", "::1", "[::1]"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_message_is_found_by_its_offset_id_however_its_broker_is_named(
    inside: Inside, name: str, bind_address: str, shown: str
) -> None:
    with LocalCluster(broker_ip1=name, bind_address=bind_address) as cluster:
        where = ("-n", cluster.name_server)
        with Producer(cluster.name_server) as producer:
            receipt = producer.send(Message("found", b"x"))
        [found] = inside.objects("message", receipt.offset_msg_id, *where)
        assert found["id"] == receipt.msg_id
        [broker] = inside.objects("cluster", *where)
        assert broker["address"] == f"{shown}:{cluster.brokers[0].port}"
