"""Bodies of msgpack: shown as JSON, within limits that are said."""

import json

import msgpack
import pytest
from aerobee.console.messages.binary import BYTES_MAX, DEPTH_MAX, from_msgpack
from aerobee.console.messages.fields import Fields
from aerobee.console.messages.shown import shown
from aerobee.protocol.message.record import Record, decode_record

from ...client.fakes import record


def stored(body: bytes) -> Record:
    return decode_record(record(3, body))


def test_msgpack_is_shown_as_json_and_searched() -> None:
    value = {"order": {"total": 7, b"\x01": b"\xff"}, 3: [None, True, msgpack.ExtType(5, b"a")]}
    body = msgpack.packb(value)
    found = shown(stored(body))
    assert (found.kind, found.bytes) == ("msgpack", len(body))
    assert json.loads(found.text) == {
        "order": {"total": 7, "01": "ff"},
        "3": [None, True, {"type": 5, "bytes": "61"}],
    }
    fields = Fields(stored(body))
    assert fields.get("body.order.total") == 7
    assert fields.get("body.3.1") is True


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x01"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\xff" * 20, "it is no"),  # 20 numbers of -1
        (nested(DEPTH_MAX + 2), "nested more than"),
        (nested(50_000), "it is no msgpack"),
        (b"\xdd\xff\xff\xff\xff", "it is no msgpack"),  # 4 G elements, and none is there
        (msgpack.packb(["x" * BYTES_MAX]), "the limit is 65,536"),
        (b"\x91\xc1", "it is no msgpack"),
        (b"\x81\x91\x01\x01", "it is no msgpack"),  # an array as a name
    ],
)
def test_nonsense_is_hexadecimal_and_said(body: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_msgpack(body)
    found = shown(stored(body))
    assert found.kind == "hex"
    assert body[:1] == b"\xff" or says in (found.note or "")
    assert Fields(stored(body)).get("body.a") is None
