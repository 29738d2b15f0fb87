"""EndTransaction and checks: any proxy ends a transaction, at any time."""

from typing import Any

import pytest
from aerobee.testing import LocalCluster

from ..support import CLIENT_TYPES, TYPES, Client, Setup, bodies, code_of, new, resource, setup

COMMIT, ROLLBACK = 1, 2
SERVER_CHECK = 2


async def begin(client: Client, topic: str, body: str) -> Any:
    """The entry of a half message."""
    answer = await client.send(topic, body, message_type=TYPES["TRANSACTION"])
    assert code_of(answer) == "OK", answer
    return answer.entries[0]


async def end(client: Client, topic: str, entry: Any, resolution: int, **fields: Any) -> Any:
    return await client.call(
        "EndTransaction",
        topic=resource(topic),
        message_id=entry.message_id,
        transaction_id=entry.transaction_id,
        resolution=resolution,
        **fields,
    )


async def test_a_committed_message_is_delivered_a_rolled_back_one_never(proxied: Setup) -> None:
    await proxied.create("Paid", "TRANSACTION")
    client = proxied.client()
    await proxied.ready(client, "Paid", "readers")
    for body, resolution in (("kept", COMMIT), ("dropped", ROLLBACK)):
        entry = await begin(client, "Paid", body)
        assert code_of(await end(client, "Paid", entry, resolution)) == "OK"
    _, found = await client.receive("Paid", "readers")
    assert bodies(found) == ["kept"]
    assert found[0].system_properties.message_type == TYPES["TRANSACTION"]


async def test_another_proxy_ends_it_half_an_hour_later(cluster: LocalCluster) -> None:
    async with setup(cluster) as first, setup(cluster) as second:
        await first.create("Handed", "TRANSACTION")
        await first.ready(first.client(), "Handed", "readers")
        entry = await begin(first.client(), "Handed", "kept")
        cluster.advance(minutes=30)
        other = second.client()
        assert code_of(await end(other, "Handed", entry, COMMIT)) == "OK"
        _, found = await other.receive("Handed", "readers")
        assert bodies(found) == ["kept"]


async def test_a_message_id_ends_the_latest_half_message_of_the_last_seconds(
    proxied: Setup,
) -> None:
    await proxied.create("Named", "TRANSACTION")
    client = proxied.client()
    await proxied.ready(client, "Named", "readers")
    entry = await begin(client, "Named", "kept")
    entry.transaction_id = entry.message_id
    assert code_of(await end(client, "Named", entry, COMMIT)) == "OK"
    _, found = await client.receive("Named", "readers")
    assert bodies(found) == ["kept"]
    assert code_of(await end(client, "Named", entry, COMMIT)) == "INVALID_TRANSACTION_ID"


@pytest.mark.parametrize("text", ["", "odd", "a1#x#1#broker-a#M", "a1#1#1#broker-a"])
async def test_an_id_of_no_proxy_is_refused(proxied: Setup, text: str) -> None:
    await proxied.create("Ended", "TRANSACTION")
    answer = await proxied.client().call(
        "EndTransaction", topic=resource("Ended"), transaction_id=text, resolution=COMMIT
    )
    assert code_of(answer) == "INVALID_TRANSACTION_ID"


async def test_a_forged_id_is_refused_with_the_broker_s_remark(proxied: Setup) -> None:
    await proxied.create("Forged", "TRANSACTION")
    client = proxied.client()
    entry = await begin(client, "Forged", "x")
    entry.transaction_id = entry.transaction_id.replace("a1#", "a1#9")
    answer = await end(client, "Forged", entry, COMMIT)
    assert code_of(answer) == "INTERNAL_SERVER_ERROR"
    assert "offset wrong" in answer.status.message


@pytest.mark.parametrize("topic", ["Checked", "111%Checked"])
async def test_a_check_reaches_the_producer_which_ends_it(
    topic: str, cluster: LocalCluster
) -> None:
    async with setup(cluster) as proxied:
        await proxied.create(topic, "TRANSACTION")
        client = proxied.client()
        await proxied.ready(client, topic, "readers")
        stream = client.telemetry()
        settings = new("Settings", client_type=CLIENT_TYPES["PRODUCER"])
        settings.publishing.topics.add(name=topic)
        await stream.write(new("TelemetryCommand", settings=settings))
        assert (await stream.read()).WhichOneof("command") == "settings"
        await proxied.proxy.service.membership.refresh()
        await begin(client, topic, "open")
        cluster.advance(minutes=2)
        command = (await stream.read()).recover_orphaned_transaction_command
        assert command.message.body == b"open"
        assert command.message.topic == resource(topic)
        half = new("SendResultEntry", transaction_id=command.transaction_id)
        answer = await end(client, topic, half, COMMIT, source=SERVER_CHECK)
        assert code_of(answer) == "OK", answer
        _, found = await client.receive(topic, "readers")
        assert bodies(found) == ["open"]
        await stream.done_writing()
