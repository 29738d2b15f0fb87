"""Messages of small services of gRPC itself, built here from their fields."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

STRING, BYTES, INT32 = "TYPE_STRING", "TYPE_BYTES", "TYPE_INT32"


class Field(NamedTuple):
    """A field: its name, number and type, which is one of the names above or a message's."""

    name: str
    number: int
    kind: str
    repeated: bool = False


class Rpc(NamedTuple):
    """A method: its name, request, response, and which of them are streams."""

    name: str
    request: str
    response: str
    streams_in: bool = False
    streams_out: bool = False


class Built(NamedTuple):
    """The descriptor of a file, and the classes of its messages by name."""

    file: Any
    classes: dict[str, Any]


def build(
    package: str, service: str, rpcs: Iterable[Rpc], messages: Mapping[str, Iterable[Field]]
) -> Built:
    """One service with its messages, in a pool of its own. Each field knows whether it is set."""
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package.replace('.', '/')}.proto", package=package, syntax="proto2"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for each in fields:
            label = proto.LABEL_REPEATED if each.repeated else proto.LABEL_OPTIONAL
            field = message.field.add(name=each.name, number=each.number, label=label)
            if each.kind in messages:
                field.type, field.type_name = proto.TYPE_MESSAGE, f".{package}.{each.kind}"
            else:
                field.type = getattr(proto, each.kind)
    methods = file.service.add(name=service).method
    for rpc in rpcs:
        methods.add(
            name=rpc.name,
            input_type=f".{package}.{rpc.request}",
            output_type=f".{package}.{rpc.response}",
            client_streaming=rpc.streams_in,
            server_streaming=rpc.streams_out,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return Built(
        file,
        {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
            for name in messages
        },
    )
