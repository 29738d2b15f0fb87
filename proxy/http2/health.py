"""grpc.health.v1: whether the proxy serves, for load balancers and Kubernetes."""

import asyncio
from collections.abc import Iterable
from typing import Any

from .built import INT32, STRING, Field, Rpc, build
from .call import SERVER_STREAM, UNARY, Call, Method
from .status import NOT_FOUND, GrpcError

SERVICE = "grpc.health.v1.Health"
SERVING, SERVICE_UNKNOWN = 1, 3


_BUILT = build(
    *("grpc.health.v1", "Health"),
    [
        Rpc("Check", "HealthCheckRequest", "HealthCheckResponse"),
        Rpc("Watch", "HealthCheckRequest", "HealthCheckResponse", streams_out=True),
    ],
    {
        "HealthCheckRequest": [Field("service", 1, STRING)],
        "HealthCheckResponse": [Field("status", 1, INT32)],  # an enum on the wire is the same
    },
)
FILE = _BUILT.file
Request, Response = _BUILT.classes.values()


def methods(services: Iterable[str]) -> dict[bytes, Method]:
    """Check and Watch; these services and the server as a whole ("") are healthy."""
    known = {"", *services}

    async def check(call: Call, request: Any) -> Any:
        if request.service not in known:
            raise GrpcError(NOT_FOUND, f"service {request.service[:200]} is not served here")
        return Response(status=SERVING)

    async def watch(call: Call, request: Any) -> None:
        found = SERVING if request.service in known else SERVICE_UNKNOWN
        await call.write(Response(status=found))
        await asyncio.Event().wait()  # it stays so until the call or the proxy ends

    return {
        f"/{SERVICE}/Check".encode(): Method(UNARY, Request.FromString, check),
        f"/{SERVICE}/Watch".encode(): Method(SERVER_STREAM, Request.FromString, watch),
    }
