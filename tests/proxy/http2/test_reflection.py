"""grpc.reflection, as grpcurl asks it."""

from typing import Any

import grpc.aio
import pytest
from aerobee.proxy.http2 import reflection
from aerobee.proxy.messages import definitions
from google.protobuf import descriptor_database, descriptor_pb2, descriptor_pool

from ..support import Setup


async def asked(proxied: Setup, package: str, **fields: Any) -> Any:
    """The answer to one request."""
    request_class = definitions.message("ServerReflectionRequest", package)
    response_class = definitions.message("ServerReflectionResponse", package)
    method = proxied.client().channel.stream_stream(
        f"/{package}.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=response_class.FromString,
    )
    stream = method()
    request = request_class(**fields)
    await stream.write(request)
    answer = await stream.read()
    assert answer.original_request == request
    await stream.done_writing()
    assert await stream.read() == grpc.aio.EOF
    return answer


@pytest.mark.parametrize("package", reflection.PACKAGES)
async def test_it_lists_the_services(proxied: Setup, package: str) -> None:
    for text in ("", "*"):
        answer = await asked(proxied, package, list_services=text)
        names = [each.name for each in answer.list_services_response.service]
        assert definitions.SERVICE in names
        assert {"grpc.health.v1.Health", f"{package}.ServerReflection"} <= set(names)


@pytest.mark.parametrize(
    "symbol",
    [
        definitions.SERVICE,
        f"{definitions.SERVICE}.SendMessage",
        f"{definitions.PACKAGE}.Message",
        "grpc.health.v1.Health",
    ],
)
async def test_a_symbol_comes_with_all_files_that_it_needs(proxied: Setup, symbol: str) -> None:
    answer = await asked(proxied, reflection.PACKAGES[0], file_containing_symbol=symbol)
    files = answer.file_descriptor_response.file_descriptor_proto
    database = descriptor_database.DescriptorDatabase()
    for data in files:
        database.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    pool = descriptor_pool.DescriptorPool(database)
    first = descriptor_pb2.FileDescriptorProto.FromString(files[0])
    assert symbol.startswith(first.package)
    pool.FindFileByName(first.name)  # nothing is missing


async def test_a_file_is_found_by_its_name(proxied: Setup) -> None:
    name = definitions.descriptor_set().file[-1].name
    answer = await asked(proxied, reflection.PACKAGES[1], file_by_filename=name)
    data = answer.file_descriptor_response.file_descriptor_proto[0]
    assert descriptor_pb2.FileDescriptorProto.FromString(data).name == name


async def test_what_is_not_there_is_an_error_in_the_answer(proxied: Setup) -> None:
    package = reflection.PACKAGES[0]
    for fields in (
        {"file_by_filename": "other.proto"},
        {"file_containing_symbol": "other.Symbol"},
        {"all_extension_numbers_of_type": "other.Symbol"},
        {"file_containing_extension": {"containing_type": "other.Symbol"}},
    ):
        answer = await asked(proxied, package, **fields)
        assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        assert "other" in answer.error_response.error_message
    answer = await asked(proxied, package)
    assert answer.error_response.error_code == grpc.StatusCode.UNIMPLEMENTED.value[0]
    name = f"{definitions.PACKAGE}.Message"
    answer = await asked(proxied, package, all_extension_numbers_of_type=name)
    assert list(answer.all_extension_numbers_response.extension_number) == []
