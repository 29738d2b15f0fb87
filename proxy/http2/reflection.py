"""grpc.reflection, v1 and v1alpha: tools such as grpcurl learn what is served, and its messages."""

from collections.abc import Iterable
from typing import Any

from .built import BYTES, INT32, STRING, Field, Rpc, build
from .call import BIDIRECTIONAL, Call, Method
from .status import NOT_FOUND, UNIMPLEMENTED

PACKAGES = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_MESSAGES = {
    "ExtensionRequest": [
        Field("containing_type", 1, STRING),
        Field("extension_number", 2, INT32),
    ],
    "ServerReflectionRequest": [
        Field("host", 1, STRING),
        Field("file_by_filename", 3, STRING),
        Field("file_containing_symbol", 4, STRING),
        Field("file_containing_extension", 5, "ExtensionRequest"),
        Field("all_extension_numbers_of_type", 6, STRING),
        Field("list_services", 7, STRING),
    ],
    "FileDescriptorResponse": [Field("file_descriptor_proto", 1, BYTES, repeated=True)],
    "ExtensionNumberResponse": [
        Field("base_type_name", 1, STRING),
        Field("extension_number", 2, INT32, repeated=True),
    ],
    "ServiceResponse": [Field("name", 1, STRING)],
    "ListServiceResponse": [Field("service", 1, "ServiceResponse", repeated=True)],
    "ErrorResponse": [Field("error_code", 1, INT32), Field("error_message", 2, STRING)],
    "ServerReflectionResponse": [
        Field("valid_host", 1, STRING),
        Field("original_request", 2, "ServerReflectionRequest"),
        Field("file_descriptor_response", 4, "FileDescriptorResponse"),
        Field("all_extension_numbers_response", 5, "ExtensionNumberResponse"),
        Field("list_services_response", 6, "ListServiceResponse"),
        Field("error_response", 7, "ErrorResponse"),
    ],
}
_RPC = Rpc(
    *("ServerReflectionInfo", "ServerReflectionRequest", "ServerReflectionResponse"), True, True
)
_BUILT = [build(package, "ServerReflection", [_RPC], _MESSAGES) for package in PACKAGES]


def methods(files: Iterable[Any]) -> dict[bytes, Method]:
    """Reflection about these files (FileDescriptorProto) and about itself."""
    known = _Files([*files, *(each.file for each in _BUILT)])
    found = {}
    for package, built in zip(PACKAGES, _BUILT, strict=True):
        request, response = (built.classes[name] for name in (_RPC.request, _RPC.response))

        async def info(call: Call, response: Any = response) -> None:
            while (asked := await call.read()) is not None:
                await call.write(known.answer(asked, response()))

        path = f"/{package}.ServerReflection/{_RPC.name}".encode()
        found[path] = Method(BIDIRECTIONAL, request.FromString, info)
    return found


class _Files:
    """Files by name and by the symbols in them."""

    def __init__(self, files: list[Any]) -> None:
        self._files = {file.name: file for file in files}
        self._of_symbol = {symbol: file for file in files for symbol in _symbols(file)}
        self._services = [
            f"{file.package}.{service.name}" for file in files for service in file.service
        ]

    def answer(self, asked: Any, answer: Any) -> Any:
        """Fill in the answer to a request."""
        answer.valid_host = asked.host
        answer.original_request.CopyFrom(asked)
        if asked.HasField("list_services"):
            for name in self._services:
                answer.list_services_response.service.add(name=name)
        elif asked.HasField("file_by_filename"):
            self._give(answer, self._files.get(asked.file_by_filename), asked.file_by_filename)
        elif asked.HasField("file_containing_symbol"):
            symbol = asked.file_containing_symbol.lstrip(".")
            self._give(answer, self._of_symbol.get(symbol), symbol)
        elif asked.HasField("all_extension_numbers_of_type"):
            name = asked.all_extension_numbers_of_type
            if name.lstrip(".") in self._of_symbol:
                answer.all_extension_numbers_response.base_type_name = name  # it has none
            else:
                self._give(answer, None, name)
        elif asked.HasField("file_containing_extension"):
            self._give(answer, None, asked.file_containing_extension.containing_type)
        else:
            answer.error_response.error_code = UNIMPLEMENTED
            answer.error_response.error_message = "the request asks for nothing that is known here"
        return answer

    def _give(self, answer: Any, file: Any, name: str) -> None:
        """A file, and after it all that it imports."""
        if file is None:
            answer.error_response.error_code = NOT_FOUND
            answer.error_response.error_message = f"{name[:200]} is not known here"
            return
        wanted = {file.name: file}
        waiting = [file]
        while waiting:
            for other in waiting.pop().dependency:
                if other not in wanted and other in self._files:
                    wanted[other] = self._files[other]
                    waiting.append(self._files[other])
        parts = answer.file_descriptor_response.file_descriptor_proto
        parts.extend(each.SerializeToString() for each in wanted.values())


def _symbols(file: Any) -> list[str]:
    """The full names of the services, methods, messages and enums of a file."""
    found = []
    for service in file.service:
        name = f"{file.package}.{service.name}"
        found += [name, *(f"{name}.{method.name}" for method in service.method)]
    found += [f"{file.package}.{enum.name}" for enum in file.enum_type]
    waiting = [(file.package, message) for message in file.message_type]
    while waiting:
        outer, message = waiting.pop()
        name = f"{outer}.{message.name}"
        found += [name, *(f"{name}.{enum.name}" for enum in message.enum_type)]
        waiting += [(name, inner) for inner in message.nested_type]
    return found
