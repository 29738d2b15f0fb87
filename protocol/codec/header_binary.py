"""The ROCKETMQ header codec, a binary form that Java and C++ clients can be switched to (byte 1).

A zero-length text reads back as null, for remark, keys and values alike. Keys may come twice with
the same value, because Java's encoder writes fast headers first and then the copy that a signing
hook made; the last one counts. Codes do not fit above 32,767.
"""

from struct import Struct, error

from ..command import Command, read_ext
from ..errors import Malformed

FIXED = Struct(
    ">"
    "h"  # code
    "B"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
    "i"
)  # length of the remark in bytes, 0 for none
FIXED_BYTES = FIXED.size
assert FIXED_BYTES == 17
LENGTH = Struct(">i")
KEY_LENGTH = Struct(">h")
CODE_MAX = 32_767

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
LANGUAGE_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}


def decode(header: bytes, body: bytes | None) -> Command:
    """A command from its header bytes and body; Malformed when a length points outside."""
    try:
        code, language, version, opaque, flag, size = FIXED.unpack_from(header)
        remark, at = _text(header, FIXED_BYTES, size)
        (size,) = LENGTH.unpack_from(header, at)
        at += 4
        end = at + size
        if size < 0 or end > len(header):
            raise Malformed(f"header fields of {size} bytes at {at} in a {len(header)}-byte header")
        ext: dict[str, str] | None = {} if size else None
        while at < end:
            (size,) = KEY_LENGTH.unpack_from(header, at)
            key, at = _text(header, at + 2, size)
            (size,) = LENGTH.unpack_from(header, at)
            value, at = _text(header, at + 4, size)
            if ext is not None and key is not None and value is not None:
                ext[key] = value
    except (error, UnicodeDecodeError) as wrong:
        raise Malformed(f"the binary header is broken: {wrong}") from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, read_ext(ext), flag, opaque, version, name, remark, body, 1)


def encode(
    code: int,
    flag: int,
    opaque: int,
    version: int,
    language: str,
    fields: dict[str, str] | None,
    remark: str | None,
) -> bytes:
    """The header bytes of one command; ValueError for a code that this codec can't carry."""
    if code > CODE_MAX:
        raise ValueError(f"code {code} does not fit the binary header, whose limit is {CODE_MAX}")
    text = b"" if remark is None else remark.encode()
    parts = []
    for key, value in (fields or {}).items():
        name, data = key.encode(), value.encode()
        parts += [KEY_LENGTH.pack(len(name)), name, LENGTH.pack(len(data)), data]
    ext = b"".join(parts)
    number = LANGUAGE_NUMBERS.get(language, LANGUAGE_NUMBERS["OTHER"])
    fixed = FIXED.pack(code, number, version, opaque, flag, len(text))
    return b"".join((fixed, text, LENGTH.pack(len(ext)), ext))


def _text(data: bytes, at: int, size: int) -> tuple[str | None, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise Malformed(f"a text of {size} bytes at {at} in a {len(data)}-byte header")
    return (data[at:end].decode() if size else None), end
