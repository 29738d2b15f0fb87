"""QueryRoute and QueryAssignment: queues, types, and endpoints that the client can reach."""

from typing import Any

import pytest
from aerobee.client import Admin
from aerobee.protocol.bodies.route import QueueData
from aerobee.proxy.calls.query_route import kinds_of, permissions
from aerobee.testing import LocalCluster

from ..support import TYPES, Client, Setup, code_of, new, resource, setup

READ, WRITE, BOTH, NONE = 2, 3, 4, 1


async def routed(client: Client, topic: str, **fields: Any) -> list[tuple[str, int, str, int]]:
    """Broker, id, host and port of each queue."""
    answer = await client.call("QueryRoute", topic=resource(topic), **fields)
    assert code_of(answer) == "OK", answer
    return [
        (
            queue.broker.name,
            queue.id,
            queue.broker.endpoints.addresses[0].host,
            queue.broker.endpoints.addresses[0].port,
        )
        for queue in answer.message_queues
    ]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (QueueData("b", 2, 2, 6), [BOTH, BOTH]),
        (QueueData("b", 3, 1, 6), [READ, READ, BOTH]),
        (QueueData("b", 1, 2, 6), [WRITE, BOTH]),
        (QueueData("b", 2, 3, 4), [READ, READ]),
        (QueueData("b", 2, 1, 2), [WRITE]),
        (QueueData("b", 0, 0, 0), [NONE]),
    ],
)
def test_each_queue_has_the_permission_that_its_counts_give(
    row: QueueData, wanted: list[int]
) -> None:
    assert permissions(row) == wanted


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED", "odd"])
def test_a_type_is_never_unspecified(kind: str) -> None:
    assert kinds_of(kind) == [TYPES[kind if kind in ("FIFO", "DELAY", "TRANSACTION") else "NORMAL"]]


def test_a_mixed_topic_takes_four_types() -> None:
    names = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
    assert kinds_of("MIXED") == [TYPES[name] for name in names]


async def test_every_broker_has_the_endpoints_that_the_client_dialled() -> None:
    with LocalCluster(brokers=2) as cluster:
        async with setup(cluster) as proxied:
            await proxied.create("Everywhere", queues=1)
            found = await routed(proxied.client(), "Everywhere")
            port = proxied.proxy.port
            assert sorted(found) == [
                ("broker-a", 0, "127.0.0.1", port),
                ("broker-b", 0, "127.0.0.1", port),
            ]


async def test_a_mapped_port_is_kept(proxied: Setup) -> None:
    await proxied.create("Mapped", queues=1)
    endpoints = new("Endpoints", scheme=3)
    endpoints.addresses.add(host="proxy.example", port=30_081)
    found = await routed(proxied.client(), "Mapped", endpoints=endpoints)
    assert found == [("broker-a", 0, "proxy.example", 30_081)]


async def test_as_in_rocketmq_the_port_can_be_that_of_the_proxy(cluster: LocalCluster) -> None:
    async with setup(cluster, use_endpoint_port_from_request=False) as proxied:
        await proxied.create("Unmapped", queues=1)
        endpoints = new("Endpoints", scheme=3)
        endpoints.addresses.add(host="proxy.example", port=30_081)
        found = await routed(proxied.client(), "Unmapped", endpoints=endpoints)
        assert found == [("broker-a", 0, "proxy.example", proxied.proxy.port)]


async def test_an_unknown_topic_is_refused_with_the_command_that_makes_it(proxied: Setup) -> None:
    answer = await proxied.client().call("QueryRoute", topic=resource("Unknown"))
    assert code_of(answer) == "TOPIC_NOT_FOUND"
    assert "No topic route info in name server for the topic: Unknown" in answer.status.message
    assert "mqadmin updateTopic -t Unknown" in answer.status.message


async def test_by_option_the_first_send_makes_a_topic_with_its_type(cluster: LocalCluster) -> None:
    async with setup(cluster, auto_create_topic=True) as proxied:
        client = proxied.client()
        answer = await client.call("QueryRoute", topic=resource("Unborn"))
        assert len(answer.message_queues[0].accept_message_types) == 4
        assert code_of(await client.send("Unborn", "first", message_group="g")) == "OK"
        async with Admin(cluster.name_server) as admin:
            (config,) = (await admin.topic_config("Unborn")).values()
        assert config.attributes == {"message.type": "FIFO"}


async def test_a_push_consumer_gets_every_broker_once(proxied: Setup) -> None:
    await proxied.create("Assigned")
    client = proxied.client()
    answer = await client.call(
        "QueryAssignment", topic=resource("Assigned"), group=resource("readers")
    )
    found = [(each.message_queue.broker.name, each.message_queue.id) for each in answer.assignments]
    assert found == [("broker-a", -1)]


async def test_a_group_in_order_gets_every_queue(proxied: Setup) -> None:
    await proxied.create("Lined", "FIFO", queues=3)
    await proxied.create_group("orderly", consume_message_orderly=True)
    client = proxied.client()
    answer = await client.call(
        "QueryAssignment", topic=resource("Lined"), group=resource("orderly")
    )
    assert [each.message_queue.id for each in answer.assignments] == [0, 1, 2]
