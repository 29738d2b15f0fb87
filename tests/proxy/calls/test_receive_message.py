"""ReceiveMessage, with AckMessage: what was sent comes out."""

from ..support import Setup, bodies, code_of, resource


async def test_what_was_sent_is_received_once_acknowledged_never_again(proxied: Setup) -> None:
    await proxied.create("Plain")
    client = proxied.client()
    route = await client.call("QueryRoute", topic=resource("Plain"))
    assert code_of(route) == "OK"
    assert [queue.id for queue in route.message_queues] == [0, 1]
    await proxied.ready(client, "Plain", "readers")
    sent = await client.send("Plain", "one", tag="t", keys=["k1", "k2"], message_type=1)
    assert code_of(sent) == "OK", sent
    status, found = await client.receive("Plain", "readers")
    assert bodies(found) == ["one"], status
    acked = await client.ack("Plain", "readers", *found)
    assert code_of(acked) == "OK", acked
    status, found = await client.receive("Plain", "readers", long_polling_timeout={"seconds": 0})
    assert (status.code, found) == (40401, [])
