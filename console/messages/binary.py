"""Bodies of msgpack as values of JSON, within limits."""

import json
from typing import Any

import msgpack

from ..texts import Text, quoted

BYTES_MAX = 64 << 10  # of a body that is read; this bounds the time, too
DEPTH_MAX = 64
BEGINS = frozenset(bytes([one]) for one in (*range(0x80, 0xA0), *range(0xDC, 0xE0)))


def may_be_msgpack(body: bytes) -> bool:
    """True if a body begins with the first byte of a msgpack map or array."""
    return body[:1] in BEGINS


def from_msgpack(body: bytes) -> Any:
    """The map or array of a body; ValueError for anything else, and for more than the limits.

    Bytes are hexadecimal, extensions a map of their type and bytes; names of maps are texts.
    """
    if len(body) > BYTES_MAX:
        raise ValueError(
            Text(
                "a body of %(size)s bytes is not read as %(name)s, the limit is %(limit)s",
                size=f"{len(body):,}",
                name="msgpack",
                limit=f"{BYTES_MAX:,}",
            )
        )
    try:
        found = msgpack.unpackb(body, raw=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as wrong:
        why = quoted(str(wrong) or type(wrong).__name__)
        raise ValueError(Text("it is no msgpack: %(why)s", why=why)) from None
    if not isinstance(found, dict | list):
        raise ValueError(Text("it is no map or array"))
    return _jsonable(found, 0)


def written(value: Any) -> str:
    """The value as JSON with indents."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _jsonable(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(Text("it is nested more than %(limit)s deep", limit=DEPTH_MAX))
    if isinstance(value, dict):
        return {_name(key): _jsonable(one, depth + 1) for key, one in value.items()}
    if isinstance(value, msgpack.ExtType):
        return {"type": value.code, "bytes": value.data.hex()}
    if isinstance(value, list | tuple):
        return [_jsonable(one, depth + 1) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, msgpack.Timestamp):
        return value.to_unix()
    return value


def _name(key: object) -> str:
    return key.hex() if isinstance(key, bytes) else str(key)
