"""What holds for every RPC: a client id, unserved methods, errors."""

import grpc
import grpc.aio
import pytest
from aerobee.proxy.messages import definitions

from ..support import CLIENT_TYPES, Setup, code_of, resource

METHODS = definitions.POOL.FindServiceByName(definitions.SERVICE).methods
RPCS = [method.name for method in METHODS]
UNARY = [
    method.name
    for method in METHODS
    if not method.server_streaming and method.name != "SyncLiteSubscription"
]


@pytest.mark.parametrize("rpc", UNARY)
async def test_every_rpc_needs_a_client_id(proxied: Setup, rpc: str) -> None:
    client = proxied.client()
    client.metadata["x-mq-client-id"] = ""
    answer = await client.call(rpc)
    assert (code_of(answer), answer.status.message) == (
        "CLIENT_ID_REQUIRED",
        "client id cannot be empty",
    )
    client.metadata["x-mq-client-id"] = "c" * 513
    assert code_of(await client.call(rpc)) == "BAD_REQUEST"


@pytest.mark.parametrize("rpc", UNARY)
async def test_an_empty_request_is_refused_with_a_code(proxied: Setup, rpc: str) -> None:
    answer = await proxied.client().call(rpc)
    assert 40_000 <= answer.status.code < 50_000
    assert answer.status.message


async def test_what_is_not_served_is_unimplemented(proxied: Setup) -> None:
    assert len(RPCS) == 17
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await proxied.client().call("SyncLiteSubscription")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_unknown_fields_and_enums_are_passed_over(proxied: Setup) -> None:
    await proxied.create("Tolerant")
    client = proxied.client()
    path = f"/{definitions.SERVICE}/QueryRoute"
    answer_class = definitions.message("QueryRouteResponse")
    method = client.channel.unary_unary(path, response_deserializer=answer_class.FromString)
    request = definitions.message("QueryRouteRequest")(topic=resource("Tolerant"))
    data = request.SerializeToString() + b"\xfa\x3f\x03odd"
    answer = await method(data, timeout=10, metadata=client.headers())
    assert code_of(answer) == "OK"
    odd = max(CLIENT_TYPES.values()) + 50
    assert code_of(await client.call("Heartbeat", client_type=odd)) == "UNRECOGNIZED_CLIENT_TYPE"
