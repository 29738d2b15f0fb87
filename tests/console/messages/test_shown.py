"""Bodies for people, within limits that are said."""

import zlib

from aerobee.console.messages.shown import BODY_BYTES_MAX, brief, shown
from aerobee.console.web.rendering import folded
from aerobee.protocol.message.record import COMPRESSED, Record, decode_record

from ...client.fakes import record


def stored(body: bytes, sys_flag: int = 0) -> Record:
    return decode_record(record(3, body, sys_flag=sys_flag))


def test_a_body_is_json_text_or_bytes() -> None:
    found = shown(stored('{"a":"é"}'.encode()))
    assert (found.kind, found.text, found.note) == ("JSON", '{\n  "a": "é"\n}', None)
    assert shown(stored(b'{"a":')).kind == "text"
    found = shown(stored(b"\x00\xffAB"))
    assert found.kind == "hex"
    assert found.text.split("  ")[0::2][0] == "000000"
    assert found.text.endswith("..AB")


def test_json_keeps_its_numbers_and_its_names_as_they_are_written() -> None:
    numbers = ["1e999", "-0.0", "0.10000000000000000001", "12345678901234567890", "1E2"]
    body = f'{{"n": [{", ".join(numbers)}], "e": {{}}, "n": []}}'
    text = shown(stored(body.encode())).text
    assert "".join(text.split()) == "".join(body.split())
    assert text.startswith('{\n  "n": [\n    1e999,\n    -0.0,')
    tree = str(folded(text))
    for one in (*numbers, ">{}<"):
        assert one in tree
    assert "Infinity" not in tree
    assert tree.count('<span class="key">n</span>') == 2
    assert '<span class="text">&#34;1&#34;</span>' in str(folded('["1"]'))
    assert folded("1") is None


def test_a_decompression_bomb_is_said_and_not_unpacked() -> None:
    packed = zlib.compress(bytes(BODY_BYTES_MAX + 1))
    found = shown(stored(packed, COMPRESSED))
    assert (found.kind, found.text, found.bytes) == ("none", "", None)
    assert "more than the limit of 4194304" in (found.note or "")
    assert brief(stored(packed, COMPRESSED)).startswith("[a compressed body of")


def test_a_brief_is_cut_between_letters() -> None:
    assert brief(stored("é".encode() * 1_000)) == "é" * 160 + "…"
    assert brief(stored(b"\xff" * 5_000)).startswith("ff ff")
    assert brief(stored(b"short")) == "short"


def test_a_body_that_is_not_read_as_json_or_msgpack_says_why() -> None:
    deep = shown(stored(b"[" * 30_000 + b"]" * 30_000))
    assert (deep.kind, deep.note) == ("text", "it is nested too deep to be read as JSON")
    long = shown(stored(b'{"a":"' + b"x" * 70_000 + b'"}'))
    assert long.kind == "text"
    assert long.note == (
        "the first 65,536 of 70,008 characters are shown; a text of 70,008 characters is not read "
        "as JSON, the limit is 65,536"
    )
    packed = shown(stored(b"\xdd" + b"\xc0" * 70_000))
    assert packed.kind == "hex"
    assert (packed.note or "").endswith(
        "a body of 70,001 bytes is not read as msgpack, the limit is 65,536"
    )
    assert shown(stored(b"[INFO] no JSON")).note is None
