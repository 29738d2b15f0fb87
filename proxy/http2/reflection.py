"""grpc.reflection, v1 and v1alpha: tools such as grpcurl learn what is served, and its messages."""

from collections.abc import Callable
from typing import Any

from ..messages import definitions
from .call import BIDIRECTIONAL, Call, Method
from .status import NOT_FOUND, UNIMPLEMENTED

PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_SERVICES = [
    f"{file.package}.{service.name}"
    for file in definitions.descriptor_set().file
    for service in file.service
]


def methods() -> dict[bytes, Method]:
    """Reflection about all services of the proxy, itself too."""
    found = {}
    for package in PACKAGES:
        request = definitions.message("ServerReflectionRequest", package)
        response = definitions.message("ServerReflectionResponse", package)

        async def info(call: Call, response: Any = response) -> None:
            while (asked := await call.read()) is not None:
                answer = response(valid_host=asked.host, original_request=asked)
                _fill(answer, asked)
                await call.write(answer)

        path = f"/{package}.ServerReflection/ServerReflectionInfo".encode()
        found[path] = Method(BIDIRECTIONAL, request.FromString, info)
    return found


def _fill(answer: Any, asked: Any) -> None:
    kind = asked.WhichOneof("message_request")
    if kind == "list_services":
        for name in _SERVICES:
            answer.list_services_response.service.add(name=name)
    elif kind == "file_by_filename":
        _answer_with(answer, definitions.POOL.FindFileByName, asked.file_by_filename)
    elif kind == "file_containing_symbol":
        _answer_with(answer, _file_with, asked.file_containing_symbol.lstrip("."))
    elif kind == "all_extension_numbers_of_type":
        name = asked.all_extension_numbers_of_type
        try:
            _file_with(name.lstrip("."))
        except KeyError:
            _refuse(answer, NOT_FOUND, f"{name[:200]} is not known here")
        else:
            answer.all_extension_numbers_response.base_type_name = name  # it has none
    elif kind == "file_containing_extension":
        name = asked.file_containing_extension.containing_type
        _refuse(answer, NOT_FOUND, f"{name[:200]} is not known here")
    else:
        _refuse(answer, UNIMPLEMENTED, "the request asks for nothing that is known here")


def _answer_with(answer: Any, find: Callable[[str], Any], name: str) -> None:
    """Put a file into the answer, and after it all that it imports."""
    try:
        wanted = [find(name)]
    except KeyError:
        _refuse(answer, NOT_FOUND, f"{name[:200]} is not known here")
        return
    for file in wanted:
        wanted += [other for other in file.dependencies if other not in wanted]
    parts = answer.file_descriptor_response.file_descriptor_proto
    parts.extend(file.serialized_pb for file in wanted)


def _file_with(symbol: str) -> Any:
    """The file that declares a symbol; KeyError if none does."""
    try:
        return definitions.POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        return definitions.POOL.FindMethodByName(symbol).containing_service.file


def _refuse(answer: Any, code: int, why: str) -> None:
    answer.error_response.error_code = code
    answer.error_response.error_message = why
