"""What all JSON bodies share: how they are written and how loosely they are read.

A body is a msgspec struct; fields are spelt on the wire in camel case unless they say otherwise.
Reading takes one pass when the text is strict JSON of the right types. Else it is read as fastjson
reads: odd keys, nulls for "absent", numbers as texts. Objects as keys are message queues everywhere
in RocketMQ, so each becomes a `MessageQueue`; its JSON text in the place of a key does too.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

import msgspec

from .. import codes
from ..codec import fastjson
from ..codec.fastjson import LENIENT_BYTES_MAX
from ..command import Command
from ..errors import Refusal
from ..wire import Int32

_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker: `queue_id` counts from 0 there. Also a key of maps."""

    topic: str = ""
    broker_name: str = ""
    queue_id: Int32 = 0


_queue_decoder = msgspec.json.Decoder(MessageQueue, strict=False)


class Body(msgspec.Struct, rename="camel"):
    """A JSON body. Subclasses declare fields; `encode` and `decode` come from here."""

    def encode(self, *, standard: bool = False) -> bytes:
        """The text as Java writes it; with `standard` numeric keys have quotes, all is ASCII."""
        return fastjson.dump(self, bare_keys=not standard, ascii_only=standard)

    @classmethod
    def decode(cls, text: bytes | None, *, lenient_bytes_max: int = LENIENT_BYTES_MAX) -> Self:
        """The body from its text; ValueError naming the body, the field and what is wrong.

        A text that is no strict JSON may have `lenient_bytes_max` bytes.
        """
        if not text:
            raise ValueError(f"{cls.__name__} is missing: the request has no body")
        return read(text, cls, lenient_bytes_max=lenient_bytes_max)


def filled(
    body: Body, name: str, entries: Iterable[bytes], *, standard: bool = False
) -> Iterator[bytes]:
    """The text of `body`, whose list or table of this name is empty, with these entries in it, in
    pieces: others may work between two. An empty entry is no more than a pause.

    What of the body comes behind the entries is read when they are through.
    """
    head, _ = _around(body, name, standard)
    yield head
    comma = b""
    for entry in entries:
        if entry:
            yield comma + entry
            comma = b","
        else:
            yield b""
    _, tail = _around(body, name, standard)
    yield tail


def _around(body: Body, name: str, standard: bool) -> tuple[bytes, bytes]:
    text = body.encode(standard=standard)
    before = b'"%b":' % name.encode()
    at = text.index(before) + len(before) + 1
    return text[:at], text[at:]


Kind = TypeVar("Kind")


def read(text: bytes, kind: type[Kind], *, lenient_bytes_max: int = LENIENT_BYTES_MAX) -> Kind:
    """A value of this type from its text; ValueError naming the type, the field, what is wrong."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    has_refs = b'"$ref"' in text
    try:
        if not has_refs:
            found: Kind = decoder.decode(text)
            return found
    except (ValueError, RecursionError):
        pass
    try:
        if not has_refs and len(text) <= lenient_bytes_max:
            return _with_quoted_keys(text, decoder, kind)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    try:
        return msgspec.convert(_fitted(fastjson.parse(text)), kind, strict=False)
    except RecursionError:
        raise ValueError(f"{kind.__name__} can't be read: it nests too deep") from None
    except ValueError as wrong:
        raise ValueError(f"{kind.__name__} can't be read: {wrong}") from None


def _with_quoted_keys(text: bytes, decoder: msgspec.json.Decoder[Kind], kind: type[Kind]) -> Kind:
    """The value when bare keys are all that the text lacks: ten times as fast as the reader that
    takes all of fastjson's liberties."""
    quoted = fastjson.quote_keys(text)
    try:
        found: Kind = decoder.decode(quoted)
        return found
    except ValueError:
        return msgspec.convert(_fitted(msgspec.json.decode(quoted)), kind, strict=False)


def _fitted(value: Any) -> Any:
    """The same without nulls, and with message queues where objects are keys."""
    if isinstance(value, dict):
        return {
            _fitted_key(key): _fitted(inner) for key, inner in value.items() if inner is not None
        }
    if isinstance(value, list):
        return [_fitted(inner) for inner in value if inner is not None]
    return value


def _fitted_key(key: Any) -> Any:
    if isinstance(key, str) and key[:1] == "{" and key[-1:] == "}":
        with suppress(ValueError):
            return _queue_decoder.decode(key)
        return msgspec.convert(_fitted(fastjson.parse(key)), MessageQueue, strict=False)
    if isinstance(key, fastjson.ObjectKey):
        return msgspec.convert(_fitted(dict(key)), MessageQueue, strict=False)
    return key


BodyKind = TypeVar("BodyKind", bound=Body)


def body_of(command: Command, kind: type[BodyKind]) -> BodyKind:
    """The request's body as a `kind`; Refusal (SYSTEM_ERROR) saying what is wrong with it."""
    try:
        return kind.decode(command.body)
    except ValueError as wrong:
        raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
