"""Our own header codec, msgpack (byte 2): one array of fixed order.

Only our client uses it, per connection, once an answer has shown that the peer is aerobee. No Java
program ever sees it.
"""

from typing import Any

import msgpack

from ..command import Command, read_ext
from ..errors import Malformed

FIELDS = 7  # code, flag, opaque, version, language, fields, remark


def decode(header: bytes, body: bytes | None) -> Command:
    """A command from its header bytes and body; Malformed when they are not our array."""
    try:
        found: Any = msgpack.unpackb(header, raw=False)
    except (ValueError, msgpack.UnpackException) as wrong:
        raise Malformed(f"the msgpack header is broken: {wrong}") from None
    if not isinstance(found, list) or len(found) != FIELDS:
        raise Malformed(f"the msgpack header is not an array of {FIELDS}")
    code, flag, opaque, version, language, fields, remark = found
    if not type(code) is type(flag) is type(opaque) is type(version) is int:
        numbers = (code, flag, opaque, version)
        raise Malformed(f"code, flag, opaque, version of the msgpack header are {numbers}")
    if fields is not None and not isinstance(fields, dict):
        raise Malformed(f"the header fields are a {type(fields).__name__}, not a map")
    if remark is not None and not isinstance(remark, str):
        raise Malformed(f"the remark is a {type(remark).__name__}, not a text")
    return Command(code, read_ext(fields), flag, opaque, version, str(language), remark, body, 2)


def encode(
    code: int,
    flag: int,
    opaque: int,
    version: int,
    language: str,
    fields: dict[str, str] | None,
    remark: str | None,
) -> bytes:
    """The header bytes of one command."""
    packed: bytes = msgpack.packb([code, flag, opaque, version, language, fields, remark])
    return packed
