"""grpc.health.v1: whether the proxy serves, for load balancers and Kubernetes.

Its two messages are built here, because they have one field each.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from .call import SERVER_STREAM, UNARY, Call, Method
from .status import NOT_FOUND, GrpcError

SERVICE = "grpc.health.v1.Health"
SERVING, SERVICE_UNKNOWN = 1, 3


def _messages() -> tuple[Any, Any]:
    """HealthCheckRequest and HealthCheckResponse."""
    file = descriptor_pb2.FileDescriptorProto(
        name="health.proto", package="grpc.health.v1", syntax="proto3"
    )
    field = descriptor_pb2.FieldDescriptorProto
    for name, member, kind in (
        ("HealthCheckRequest", "service", field.TYPE_STRING),
        ("HealthCheckResponse", "status", field.TYPE_INT32),  # an enum on the wire is the same
    ):
        file.message_type.add(name=name).field.add(
            name=member, number=1, type=kind, label=field.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    request, response = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"grpc.health.v1.{name}"))
        for name in ("HealthCheckRequest", "HealthCheckResponse")
    )
    return request, response


Request, Response = _messages()


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
