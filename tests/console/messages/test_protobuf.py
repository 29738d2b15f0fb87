"""Bodies of protobuf: shown by the types of a file, within limits that are said."""

import json
from pathlib import Path

import pytest
from aerobee.console.messages.binary import BYTES_MAX
from aerobee.console.messages.protobuf import ProtobufTypes
from aerobee.console.messages.shown import shown
from aerobee.protocol.message.record import Record, decode_record
from google.protobuf import descriptor_pb2

from ...client.fakes import record


def stored(body: bytes) -> Record:
    return decode_record(record(3, body))


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    """A file with the type shop.Order: total, and inner orders."""
    kinds = descriptor_pb2.FieldDescriptorProto
    order = descriptor_pb2.DescriptorProto(name="Order")
    order.field.add(name="total", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="inner",
        number=2,
        type=kinds.TYPE_MESSAGE,
        label=kinds.LABEL_REPEATED,
        type_name=".shop.Order",
    )
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", message_type=[order]
    )
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path


def test_protobuf_is_shown_by_a_type_of_the_file(descriptors: Path) -> None:
    types = ProtobufTypes(descriptors, {"orders": "shop.Order"})
    assert types.names == ["shop.Order"]
    found = shown(stored(b"\x08\x07\x12\x02\x08\x05"), types=types, wanted="shop.Order")
    assert (found.kind, found.note) == ("shop.Order", None)
    assert json.loads(found.text) == {"total": "7", "inner": [{"total": "5"}]}
    assert shown(stored(b""), types=types, wanted="shop.Order").text == "{}"


def deep(levels: int) -> bytes:
    body = b""
    for _ in range(levels):
        size, length = len(body), b""
        while size > 127:
            length += bytes([size & 127 | 128])
            size >>= 7
        body = b"\x12" + length + bytes([size]) + body
    return body


@pytest.mark.parametrize(
    ("body", "wanted", "says"),
    [
        (b"text", "shop.Order", "it is no shop.Order"),
        (b"\x08", "shop.Order", "it is no shop.Order"),
        (b"\x1a\x01a", "shop.Order", "no field of this type"),
        (deep(1_000), "shop.Order", "it is no shop.Order"),
        (b"\x08\x07" * BYTES_MAX, "shop.Order", "the limit is 65,536"),
        (b"\x08\x07", "shop.None", "there is no type 'shop.None'"),
    ],
)
def test_what_is_no_such_protobuf_is_said(
    descriptors: Path, body: bytes, wanted: str, says: str
) -> None:
    types = ProtobufTypes(descriptors, {})
    found = shown(stored(body), types=types, wanted=wanted)
    assert says in (found.note or "")
    assert found.kind in ("text", "hex")


def test_a_type_without_a_file_is_said() -> None:
    assert "--descriptors" in (shown(stored(b"a"), wanted="shop.Order").note or "")


def test_a_file_that_can_not_be_used_is_refused(descriptors: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff\xff")
    (tmp_path / "empty").write_bytes(b"")
    for path, by_topic, says in (
        (tmp_path / "absent", {}, "can't read"),
        (tmp_path / "bad", {}, "no whole set of descriptors"),
        (tmp_path / "empty", {}, "has 0 types"),
        (descriptors, {"orders": "shop.None"}, "no type 'shop.None' for topic orders"),
    ):
        with pytest.raises(ValueError, match=says):
            ProtobufTypes(path, by_topic)
