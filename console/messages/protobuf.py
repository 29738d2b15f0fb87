"""Bodies of protobuf, read with the types of a descriptor file (`protoc --descriptor_set_out`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from ..texts import Text
from .binary import BYTES_MAX, written

FILE_BYTES_MAX = 16 << 20
TYPES_MAX = 10_000


class ProtobufTypes:
    """The types of a file, by full name; `by_topic` are those of topics. ValueError for a file that
    can't be used, and for a topic's type that it does not have."""

    def __init__(self, path: Path, by_topic: Mapping[str, str]) -> None:
        try:
            data = path.read_bytes()
        except OSError as wrong:
            raise ValueError(f"can't read {path}: {wrong.strerror}; name another file") from None
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"{path} has {len(data):,} bytes, the limit is {FILE_BYTES_MAX:,}")
        self.path = path
        self._pool = descriptor_pool.DescriptorPool()
        names: list[str] = []
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
                self._pool.Add(file)
                prefix = f"{file.package}." if file.package else ""
                _collect(prefix, file.message_type, names)
            for name in names:
                self._pool.FindMessageTypeByName(name)
        except (DecodeError, TypeError, KeyError, ValueError, RecursionError) as wrong:
            raise ValueError(
                f"{path} is no whole set of descriptors ({wrong}); make it with protoc "
                "--include_imports --descriptor_set_out=FILE"
            ) from None
        self.names = sorted(names)
        if not names or len(names) > TYPES_MAX:
            raise ValueError(f"{path} has {len(names):,} types; give a file of 1 to {TYPES_MAX:,}")
        for topic, name in by_topic.items():
            if name not in names:
                raise ValueError(f"{path} has no type {name[:255]!r} for topic {topic[:255]}")
        self.by_topic = dict(by_topic)

    def text(self, name: str, body: bytes) -> str:
        """A body as JSON with indents; ValueError, which says why, when it is none of this type."""
        return written(self.value(name, body))

    def value(self, name: str, body: bytes) -> Any:
        """A body as values of JSON; ValueError, which says why, when it is none of this type."""
        if name not in self.names:
            raise ValueError(
                Text("there is no type %(name)s in the file of descriptors", name=f"{name[:255]!r}")
            )
        if len(body) > BYTES_MAX:
            raise ValueError(
                Text(
                    "a body of %(size)s bytes is not read as %(name)s, the limit is %(limit)s",
                    size=f"{len(body):,}",
                    name=name,
                    limit=f"{BYTES_MAX:,}",
                )
            )
        found = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))()
        try:
            found.ParseFromString(body)
            if body and not found.ListFields():
                raise ValueError(Text("it has no field of this type"))
            return json_format.MessageToDict(
                found, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        except (DecodeError, ValueError, TypeError, RecursionError, json_format.Error) as wrong:
            raise ValueError(Text("it is no %(name)s: %(wrong)s", name=name, wrong=wrong)) from None


def _collect(prefix: str, types: object, names: list[str]) -> None:
    waiting = [(prefix, one) for one in types]  # type: ignore[attr-defined]
    while waiting and len(names) <= TYPES_MAX:
        before, one = waiting.pop()
        if not one.options.map_entry:
            names.append(before + one.name)
        waiting += [(f"{before}{one.name}.", inner) for inner in one.nested_type]
