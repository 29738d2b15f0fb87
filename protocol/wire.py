"""How custom headers are declared.

A header is a class of annotated fields; the wire spelling stands beside the name, here and nowhere
else. msgspec compiles the reader when the class is made, so a SEND header with 13 fields costs less
than a microsecond:

    class QueryConsumerOffset(Header):
        group: str = field(name="consumerGroup")
        queue_id: Int32 = field(name="queueId")
        zero_if_missing: bool = field(name="setZeroIfNotFound", default=True)

On the wire every value is text: numbers in decimal, booleans `true` and `false`. Null fields are
left out, unknown ones are ignored.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import field

from . import codes

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

NUMBER_CHARS_MAX = 64  # of a number's text; longer ones are out of every range

__all__ = ["Header", "Int32", "Int64", "field", "read_fields"]


_WHOLE_NUMBER = re.compile(r"[+-]?\d+")


class Header(msgspec.Struct, gc=False):
    """A custom header. Subclasses declare fields; reading and writing come from here.

    A field that is missing or can't be read is refused with `refused_with`: RocketMQ's handlers
    mostly fail at the null. `may_miss` has the texts of required fields that they do without.
    """

    refused_with: ClassVar[int] = codes.SYSTEM_ERROR
    may_miss: ClassVar[Mapping[str, str]] = {}
    json_decoder: ClassVar[msgspec.json.Decoder[Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.json_decoder = _LazyDecoder(cls)  # type: ignore[assignment]

    def to_fields(self) -> dict[str, str]:
        """Wire names to texts; None fields left out."""
        found: dict[str, str] = {}
        for name, value in msgspec.to_builtins(self).items():
            if value is None:
                continue
            if value is True or value is False:
                value = "true" if value else "false"
            found[name] = value if type(value) is str else str(value)
        return found


class _LazyDecoder:
    """Stands in until the class is complete, then puts the compiled decoder in its own place."""

    def __init__(self, kind: type[Header]) -> None:
        self._kind = kind

    def decode(self, raw: bytes | msgspec.Raw) -> Any:
        decoder = msgspec.json.Decoder(self._kind, strict=False)
        self._kind.json_decoder = decoder
        return decoder.decode(raw)


Kind = TypeVar("Kind", bound=Header)


def read_fields(kind: type[Kind], fields: dict[str, str]) -> Kind:
    """A header from wire names to texts, as loosely as Java reads them.

    A boolean is true only when its text is "true" in any case; a number may have a plus, zeros in
    front, and digits of any script; an empty text means that an optional field is absent. Raises
    msgspec.ValidationError naming the field otherwise.
    """
    values: dict[str, Any] = {**kind.may_miss, **fields}
    for info in msgspec.structs.fields(kind):
        text = values.get(info.encode_name)
        if text is None:
            continue
        if info.type is bool or info.type == bool | None:
            values[info.encode_name] = text.lower() == "true"
        elif text == "" and not info.required and info.type not in (str, str | None):
            del values[info.encode_name]
        elif info.type not in (str, str | None) and _WHOLE_NUMBER.fullmatch(text):
            values[info.encode_name] = int(text) if len(text) <= NUMBER_CHARS_MAX else text
    return msgspec.convert(values, kind, strict=False)
