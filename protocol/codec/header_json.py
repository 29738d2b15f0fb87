"""The JSON header codec: what every client speaks unless told otherwise (codec byte 0).

Written as Java writes it: keys in alphabetical order, no spaces, null fields left out, all header
values as strings. Read as loosely as Java reads it: any order, unquoted keys, numbers as strings
and strings as numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from ..command import VERSION, Command, read_ext
from ..errors import Malformed
from ..wire import Header
from . import fastjson

_decode = msgspec.json.Decoder(Command, strict=False).decode
START_BYTES = 12  # holds the code in every header that begins with it, as those of clients do
Expected = dict[bytes, Callable[[bytes], Command]]
NOTHING_EXPECTED: Expected = {}
# An answer that says it went well, whose custom header is left for later.
ANSWERS: Expected = {b'{"code":0,"e': _decode}
# What stands behind the opaque of a request, where ours is the version.
AFTER_OPAQUE = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_encode = msgspec.json.Encoder().encode


def decode(header: bytes, body: bytes | None) -> Command:
    """A command from its header text and body; Malformed when the text is not a header."""
    try:
        found = _decode(header)
    except ValueError:  # also for bytes that are no UTF-8
        return _decode_lenient(header, body)
    except RecursionError:
        raise Malformed("the header nests objects too deeply") from None
    found.body = body
    found.codec = 0
    return found


def expected(kinds: Mapping[int, type[Header]]) -> Expected:
    """The decoders with which `FrameDecoder` reads headers of these requests in one pass, with
    custom header.

    For the few requests that come with every message. Of their custom headers only the declared
    fields are kept. One that doesn't fit is read the usual way.
    """
    found: Expected = {}
    for code, kind in kinds.items():
        whole = msgspec.defstruct(
            f"{kind.__name__}Command",
            [("ext", kind, msgspec.field(name="extFields"))],
            bases=(Command,),
            kw_only=True,
            gc=False,
        )
        decoder = msgspec.json.Decoder(cast(type[Command], whole), strict=False)
        found[(b'{"code":%d,"extFields"' % code)[:START_BYTES]] = decoder.decode
    return found


def encode(
    code: int,
    flag: int,
    opaque: int,
    version: int,
    language: str,
    fields: dict[str, str] | None,
    remark: str | None,
) -> bytes:
    """The header text of one command."""
    parts = [b'{"code":%d,' % code]
    if fields is not None:
        parts.append(b'"extFields":%b,' % _encode(fields))
    parts.append(b'"flag":%d,"language":"%b","opaque":%d,' % (flag, language.encode(), opaque))
    if remark is not None:
        parts.append(b'"remark":%b,' % _encode(remark))
    parts.append(b'"serializeTypeCurrentRPC":"JSON","version":%d}' % version)
    return b"".join(parts)


def _decode_lenient(header: bytes, body: bytes | None) -> Command:
    try:
        found = fastjson.parse(header)
    except ValueError as wrong:
        raise Malformed(f"the header is not JSON: {wrong}") from None
    if not isinstance(found, dict):
        raise Malformed(f"the header is a JSON {type(found).__name__}, not an object")
    ext = found.get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise Malformed(f"extFields is a {type(ext).__name__}, not an object")
    remark = found.get("remark")
    return Command(
        _number(found, "code"),
        read_ext(ext),
        _number(found, "flag"),
        _number(found, "opaque"),
        _number(found, "version"),
        found.get("language", "JAVA"),
        None if remark is None else str(remark),
        body,
        0,
    )


def _number(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    if value is None:
        return 0
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise Malformed(f"header field {name} is {value!r}, not a number") from None
