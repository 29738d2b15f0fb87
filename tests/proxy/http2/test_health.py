"""grpc.health.v1, as load balancers ask for it."""

import grpc
import grpc.aio
import pytest
from aerobee.proxy.http2.health import Request, Response
from aerobee.proxy.messages import definitions

from ..support import SECONDS, Setup


async def checked(proxied: Setup, service: str) -> int:
    method = proxied.client().channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )
    answer = await method(Request(service=service), timeout=SECONDS)
    status: int = answer.status
    return status


async def test_the_proxy_and_its_service_are_healthy(proxied: Setup) -> None:
    assert await checked(proxied, "") == 1
    assert await checked(proxied, definitions.SERVICE) == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await checked(proxied, "other")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_watch_begins_with_the_status(proxied: Setup) -> None:
    method = proxied.client().channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )
    for service, wanted in (("", 1), ("other", 3)):
        stream = method(Request(service=service), timeout=SECONDS)
        assert (await stream.read()).status == wanted
        stream.cancel()
