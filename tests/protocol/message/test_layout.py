"""Offsets and formats of binary layouts come from one table."""

from struct import Struct

from aerobee.protocol.message.layout import Layout
from aerobee.protocol.message.record import HEAD_BYTES, LAYOUT

FIELDS = Layout({"size": "i", "magic": "I", "place": "q", "host": "8s"})


def test_offsets_and_structs_agree_with_the_table() -> None:
    assert FIELDS.at == {"size": 0, "magic": 4, "place": 8, "host": 16}
    assert FIELDS.size == FIELDS.struct.size == 24
    assert FIELDS.span("magic", "place").format == ">Iq"


def test_a_pick_skips_the_other_fields() -> None:
    data = FIELDS.struct.pack(-1, 0xDAA320A7, 5, b"12345678")
    assert FIELDS.pick("size", "place").unpack_from(data) == (-1, 5)
    assert FIELDS.pick("size.unsigned", "magic.low").unpack_from(data) == (0xFFFFFFFF, 0xA7)


def test_a_dtype_has_the_offsets_of_the_table() -> None:
    found = FIELDS.dtype("magic", "place", size=100)
    assert found["formats"] == [">u4", ">i8"]
    assert found["offsets"] == [4, 8]
    assert found["itemsize"] == 100


def test_the_head_of_a_record_is_rocketmqs() -> None:
    assert LAYOUT.struct.format == Struct(">iIiiiqqiq8sq8siqi").format
    assert HEAD_BYTES == 88
