"""A command: one request or one response, between the bytes and the handlers.

Decoders return a `Command`. Its custom header stays undecoded (`ext`) until a caller asks for it
with `header(kind)`, because only the request table knows its kind. Handlers return a `Response`;
the connection adds opaque and codec and encodes it.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from . import codes
from .errors import Refusal
from .wire import Header, read_fields

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

CODEC_JSON = 0
CODEC_ROCKETMQ = 1

VERSION = 479  # MQVersion ordinal of RocketMQ 5.3.3, whose protocol aerobee speaks
VERSION_NAME = "V5_3_3"  # its MQVersion.getVersionDesc
LANGUAGE = "PYTHON"
# Of responses, as RocketMQ's servers name it. A client of aerobee 0.1 that reads PYTHON in a
# response goes on with headers of msgpack, which later servers refuse (decision 58).
RESPONSE_LANGUAGE = "JAVA"

USUAL_BYTES = 1_024  # the usual limit of a request without a message in it

Kind = TypeVar("Kind", bound=Header)
NO_EXT = msgspec.Raw(b"null")


def read_ext(fields: dict[str, Any] | None) -> msgspec.Raw:
    """The `ext` of a command whose codec has already read its custom header into a dict.

    The type says Raw, because msgspec fills only that in from a JSON header.
    """
    return NO_EXT if fields is None else cast(msgspec.Raw, fields)


class Command(msgspec.Struct, gc=False):
    """One decoded command; the JSON codec reads its header text straight into this.

    `ext` is the custom header: raw JSON, a dict where the header came in another codec, or a
    decoded `Header` where the codec knew what to expect. `body` is None without bytes, as in
    RocketMQ. `codec` is the header codec; the response uses the same. Decoders always set `body`
    and `codec`, so a header text can't.
    """

    code: int = 0
    ext: msgspec.Raw = msgspec.field(name="extFields", default=NO_EXT)
    flag: int = 0
    opaque: int = 0
    version: int = 0
    language: str | int = "JAVA"
    remark: str | None = None
    body: bytes | None = None
    codec: int = CODEC_JSON

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def header(self, kind: type[Kind]) -> Kind:
        """The custom header as a `kind`; Refusal (`kind.refused_with`) naming a wrong field."""
        ext: Any = self.ext
        if type(ext) is kind:
            return ext  # the codec knew what to expect
        try:
            if type(ext) is msgspec.Raw:
                return kind.json_decoder.decode(ext)  # type: ignore[no-any-return]
            return msgspec.convert(ext or {}, kind, strict=False)
        except ValueError:  # of msgspec, or bytes that are no UTF-8
            return self._lenient_header(kind)

    def fields(self) -> dict[str, str]:
        """The custom header as a dict from wire names to texts; empty without one."""
        ext: Any = self.ext
        if type(ext) is msgspec.Raw:
            ext = msgspec.json.decode(ext)
        elif isinstance(ext, Header):
            return ext.to_fields()
        if not isinstance(ext, dict):
            return {}
        return {str(name): _text(value) for name, value in ext.items() if value is not None}

    def weight(self) -> int:
        """The approximate memory of its texts and body in bytes; 0 up to `USUAL_BYTES`."""
        ext: Any = self.ext
        if type(ext) is msgspec.Raw:
            found = memoryview(ext).nbytes
        elif isinstance(ext, dict):
            found = sum(len(str(name)) + len(str(value)) for name, value in ext.items())
        else:
            texts = msgspec.structs.astuple(ext)
            found = sum(len(text) for text in texts if isinstance(text, str))
        found += len(self.body or b"") + len(self.remark or "") + len(str(self.language))
        return found if found > USUAL_BYTES else 0

    def _lenient_header(self, kind: type[Kind]) -> Kind:
        """`header`, read as leniently as Java does: numbers as text, odd booleans, empty texts."""
        name = codes.REQUEST_NAMES.get(self.code, str(self.code))
        try:
            return read_fields(kind, self.fields())
        except ValueError as wrong:
            raise Refusal(
                kind.refused_with,
                f"header of request {name} ({self.code}) can't be read: {wrong}; send every "
                "required field with a value of its type",
            ) from None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@dataclass(slots=True)
class Response:
    """A response before it has an opaque: code, header fields by wire name, remark, body.

    `body` is bytes or a list of buffers that are written one after the other.
    """

    code: int = codes.SUCCESS
    fields: dict[str, str] | None = None
    remark: str | None = None
    body: bytes | list[bytes] | list[bytes | memoryview] | None = field(default=None)


OK = Response()
