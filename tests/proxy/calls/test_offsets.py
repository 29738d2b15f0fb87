"""UpdateOffset, GetOffset, QueryOffset and PullMessage."""

from typing import Any

from ..support import Client, Setup, code_of, new, resource

POLICIES = {"BEGINNING": 0, "END": 1, "TIMESTAMP": 2}


def queue(topic: str, number: int = 0, broker: str = "broker-a") -> Any:
    found = new("MessageQueue", topic=resource(topic), id=number)
    found.broker.name = broker
    return found


async def filled(proxied: Setup, topic: str) -> Client:
    """A client, and a topic with three messages in one queue."""
    await proxied.create(topic, queues=1)
    await proxied.create_group("pullers")
    client = proxied.client()
    for body in ("zero", "one", "two"):
        await client.send(topic, body)
    return client


async def pulled(client: Client, topic: str, **fields: Any) -> tuple[Any, list[str], int]:
    """Status, bodies and next offset of a pull."""
    fields.setdefault("batch_size", 32)
    stream = client.stream(
        "PullMessage", group=resource("pullers"), message_queue=queue(topic), **fields
    )
    status, found, following = None, [], -1
    async for answer in stream:
        kind = answer.WhichOneof("content")
        if kind == "status":
            status = answer.status
        elif kind == "message":
            found.append(answer.message.body.decode())
        else:
            following = answer.next_offset
    return status, found, following


async def test_offsets_are_committed_and_read(proxied: Setup) -> None:
    client = await filled(proxied, "Counted")
    fields = {"group": resource("pullers"), "message_queue": queue("Counted")}
    assert code_of(await client.call("GetOffset", **fields)) == "OFFSET_NOT_FOUND"
    assert code_of(await client.call("UpdateOffset", offset=2, **fields)) == "OK"
    answer = await client.call("GetOffset", **fields)
    assert (code_of(answer), answer.offset) == ("OK", 2)
    assert code_of(await client.call("UpdateOffset", offset=-1, **fields)) == "ILLEGAL_OFFSET"


async def test_the_bounds_of_a_queue_are_told(proxied: Setup) -> None:
    client = await filled(proxied, "Bounded")
    future = {"seconds": proxied.cluster.clock() // 1_000 + 600}
    rows: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("BEGINNING", {}, 0),
        ("END", {}, 3),
        ("TIMESTAMP", {"timestamp": {"seconds": 1}}, 0),
        ("TIMESTAMP", {"timestamp": future}, 3),
    )
    for policy, more, wanted in rows:
        answer = await client.call(
            "QueryOffset",
            message_queue=queue("Bounded"),
            query_offset_policy=POLICIES[policy],
            **more,
        )
        assert (code_of(answer), answer.offset) == ("OK", wanted), policy


async def test_a_queue_that_is_not_there_is_refused(proxied: Setup) -> None:
    client = await filled(proxied, "Single")
    for wrong in (queue("Single", 1), queue("Single", -1), queue("Single", 0, "broker-z")):
        answer = await client.call("QueryOffset", message_queue=wrong)
        assert code_of(answer) == "BAD_REQUEST"


async def test_a_pull_reads_from_an_offset_on(proxied: Setup) -> None:
    client = await filled(proxied, "Pulled")
    status, found, following = await pulled(client, "Pulled", offset=1)
    assert (status.code, found, following) == (20000, ["one", "two"], 3)
    status, found, following = await pulled(client, "Pulled", offset=3)
    assert (status.code, found, following) == (40401, [], 3)
    status, _, _ = await pulled(client, "Pulled", offset=-1)
    assert status.code == 40019
    status, _, _ = await pulled(client, "Pulled", offset=99)
    assert status.code == 40019
