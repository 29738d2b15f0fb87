"""grpc.health.v1: whether the proxy serves, for load balancers and Kubernetes."""

import asyncio
from collections.abc import Iterable
from typing import Any

from ..messages import definitions
from .call import SERVER_STREAM, UNARY, Call, Method
from .status import NOT_FOUND, GrpcError

PACKAGE = "grpc.health.v1"
SERVICE = f"{PACKAGE}.Health"
SERVING, SERVICE_UNKNOWN = 1, 3
Request = definitions.message("HealthCheckRequest", PACKAGE)
Response = definitions.message("HealthCheckResponse", PACKAGE)


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
