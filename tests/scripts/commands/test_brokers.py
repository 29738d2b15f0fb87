"""`aerobee drain`: what keeps a broker, and that nothing of it is lost before it is empty."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from aerobee.client.blocking import (
    Admin,
    Consumer,
    Message,
    Producer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from aerobee.testing.cluster import LocalCluster

from ...loss.ledger import Ledger
from ...waiting import PROCESS
from ..command import Inside


@pytest.fixture
def pair() -> Iterator[LocalCluster]:
    """Two brokers, one of which is drained."""
    with LocalCluster(brokers=2) as one:
        yield one


def drained(pair: LocalCluster, inside: Inside, *words: str) -> str:
    """What keeps broker-b, a line each."""
    code, out, error = inside("drain", "broker-b", "-n", pair.name_server, *words)
    assert error == ""
    assert code == (1 if "  yes" in out else 0), out
    return out


def kept(pair: LocalCluster, inside: Inside) -> dict[str, int]:
    """Messages by what keeps broker-b."""
    _, out, _ = inside("drain", "broker-b", "-n", pair.name_server, "--look", "--json")
    found: dict[str, int] = {}
    for line in out.splitlines():
        row = json.loads(line)
        if row["keeps_it"] == "yes":
            found[row["what"]] = found.get(row["what"], 0) + row["messages"]
    return found


def test_it_takes_nothing_more_and_is_read_to_its_end(pair: LocalCluster, inside: Inside) -> None:
    ledger = Ledger()
    ends: dict[tuple[str, int], int] = {}

    def send(producer: Producer, body: bytes) -> str:
        receipt = producer.send(Message("orders", body))
        queue = (f"{receipt.queue.topic} {receipt.queue.broker_name}", receipt.queue.queue_id)
        ledger.sent(body, queue)
        ledger.acknowledged(body, receipt.queue_offset)
        ends[queue] = receipt.queue_offset + 1
        return str(receipt.queue.broker_name)

    with Admin(pair.name_server) as admin:
        admin.create_topic("orders", queues=2)
    with Consumer(pair.name_server, group="g", topics=["orders"], start="earliest") as consumer:
        with Producer(pair.name_server) as producer:
            names = {send(producer, b"%d" % number) for number in range(40)}
            assert names == {"broker-a", "broker-b"}
        for _ in range(40):  # what was read is committed when the consumer closes
            message = consumer.receive(PROCESS)
            assert message is not None
            where = (f"orders {message.queue.broker_name}", message.queue_id)
            ledger.delivered(where, message.offset, message.body)
            message.ack()
    with Producer(pair.name_server) as producer:
        for number in range(40, 60):
            send(producer, b"%d" % number)
    out = drained(pair, inside)
    assert "still has 10 messages to hand out" in out
    assert [line.split()[:3] for line in out.splitlines()[1:3]] == [["group", "g", "orders"]] * 2
    with Producer(pair.name_server) as producer:  # whose routes are new
        assert {send(producer, b"%d" % number) for number in range(60, 70)} == {"broker-a"}
    with Consumer(pair.name_server, group="g", topics=["orders"], start="earliest") as consumer:
        for _ in range(30):
            message = consumer.receive(PROCESS)
            assert message is not None
            where = (f"orders {message.queue.broker_name}", message.queue_id)
            ledger.delivered(where, message.offset, message.body)
            message.ack()
    for queue, end in ends.items():
        ledger.read_all(queue, 0, end)
    ledger.check()
    out = drained(pair, inside, "--wait", "--settle", "0.1")
    assert out.endswith("is empty: every group has read it to its end\n")


def test_what_waits_for_a_time_keeps_it(pair: LocalCluster, inside: Inside) -> None:
    with Admin(pair.name_server) as admin:
        admin.create_topic("later", queues=1, broker="broker-b")
    with Producer(pair.name_server) as producer:
        producer.send(Message("later", b"level", delay_level=5))
        producer.send(Message("later", b"timer", delay=600))
    pair.advance(seconds=2)
    assert kept(pair, inside) == {"delay level": 1, "timers": 1}
    pair.advance(minutes=20)
    assert kept(pair, inside) == {}  # no group has read the topic
    out = drained(pair, inside)
    assert ["no", "group", "-", "later", "all", "2", "no"] in [
        line.split() for line in out.splitlines()
    ]


def test_a_half_message_keeps_it(pair: LocalCluster, inside: Inside) -> None:
    with Admin(pair.name_server) as admin:
        admin.create_topic("paid", queues=1, broker="broker-b")
    with TransactionProducer(
        pair.name_server, group="payers", check=lambda _: TransactionState.UNKNOWN
    ) as producer:
        receipt = producer.begin(Message("paid", b"half"))
        assert kept(pair, inside) == {"half messages": 1}
        producer.end_confirmed(receipt, TransactionState.COMMIT)
    pair.advance(minutes=2)
    assert kept(pair, inside) == {}


def test_a_popped_message_that_is_not_acknowledged_keeps_it(
    pair: LocalCluster, inside: Inside
) -> None:
    with Admin(pair.name_server) as admin:
        admin.create_topic("popped", queues=1, broker="broker-b")
    with Producer(pair.name_server) as producer:
        producer.send(Message("popped", b"once"))
    with SimpleConsumer(pair.name_server, group="p", topics=["popped"]) as consumer:
        (message,) = consumer.receive(1)
        assert sum(kept(pair, inside).values()) == 1
        consumer.ack(message)
    pair.advance(minutes=2)
    assert kept(pair, inside) == {}


def test_undo_lets_it_take_messages_again(pair: LocalCluster, inside: Inside) -> None:
    drained(pair, inside)
    where = ("-n", pair.name_server)
    code, out, _ = inside("drain", "broker-b", "--undo", *where)
    assert (code, out.endswith("takes messages again\n")) == (0, True)
    with Admin(pair.name_server) as admin:
        admin.create_topic("open", queues=1)
        perms = {one.broker_name: one.perm for one in admin.route("open").queue_datas}
    assert perms == {"broker-a": 6, "broker-b": 6}


def test_an_unknown_broker_is_refused_with_those_there_are(
    pair: LocalCluster, inside: Inside
) -> None:
    code, _, error = inside("drain", "broker-x", "-n", pair.name_server)
    assert code == 1
    assert "there is no master broker-x; the name server knows broker-a (127.0.0.1:" in error
