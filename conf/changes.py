"""Settings that requests read and change: a frozen struct from and to `key=value` lines."""

import difflib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, Self, TypeVar

import msgspec

from ..protocol import codes
from ..protocol.codec import java_properties
from ..protocol.errors import Refusal

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound=msgspec.Struct)


class Changeable(Protocol):
    """Settings of which a request may change all that are not on the black list."""

    @property
    def black_list(self) -> frozenset[str]: ...

    def changed(self, texts: Mapping[str, str]) -> Self: ...


Changed = TypeVar("Changed", bound=Changeable)


def names_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The attribute of each key that `kind` declares."""
    return {info.encode_name: info.name for info in msgspec.structs.fields(kind)}


def changed(config: Config, kind: type[msgspec.Struct], texts: Mapping[str, object]) -> Config:
    """A copy with these keys of `kind` set; ValueError names the key, its value and the legal ones.

    `config` is a `kind` or a subclass. Keys that `kind` doesn't declare are ignored.
    """
    names, found = names_of(kind), config
    for key, value in texts.items():
        name = names.get(key)
        if name is None:
            continue
        try:
            one = msgspec.convert({key: value}, kind, strict=False)
        except msgspec.ValidationError as wrong:
            reason = str(wrong).partition(" - at ")[0].replace("`", "")
            raise ValueError(
                f"setting {key} is {value!r}: {reason[:1].lower()}{reason[1:]}"
            ) from None
        found = msgspec.structs.replace(found, **{name: getattr(one, name)})
    return found


def unknown_keys(kind: type[msgspec.Struct], keys: Iterable[str]) -> dict[str, str | None]:
    """The keys that `kind` doesn't declare, each with the most similar one that it does."""
    names = names_of(kind)
    return {
        key: next(iter(difflib.get_close_matches(key, names, 1)), None)
        for key in keys
        if key not in names
    }


def requested(config: Changed, kind: type[msgspec.Struct], body: bytes, address: str) -> Changed:
    """The settings with the changes that the body of a request from `address` asks for.

    Refusal (SYSTEM_ERROR, NO_PERMISSION, INVALID_PARAMETER) when the body can't be read, names a
    key on the black list, or has a value that is not legal. Unknown keys are only logged.
    """
    try:
        texts = java_properties.parse(body.decode("utf-8", "replace"))
    except ValueError as wrong:
        log.warning("settings from %s: %s", address, wrong)
        raise Refusal(codes.SYSTEM_ERROR, f"string2Properties error: {wrong}") from None
    closed = sorted(config.black_list.intersection(texts))
    if closed:
        why = f"What may not be changed is {', '.join(closed)}; set it before the start"
        raise Refusal(codes.NO_PERMISSION, f"Can not update config in black list. {why}")
    try:
        found = config.changed(texts)
    except ValueError as wrong:
        raise Refusal(codes.INVALID_PARAMETER, str(wrong)) from None
    for key, near in unknown_keys(kind, texts).items():
        hint = f"; did you mean {near}?" if near else ""
        log.warning("unknown setting %s has no effect%s", ascii(key), hint)
    log.info("settings changed by %s: %s", address, ", ".join(sorted(texts)))
    return found


def to_properties(
    config: msgspec.Struct, kind: type[msgspec.Struct], left_out: Collection[str] = ()
) -> str:
    """The keys of `kind` as `key=value` lines, without those in `left_out`."""
    names = names_of(kind)
    return java_properties.dump(
        {key: _text(getattr(config, names[key])) for key in names if key not in left_out}
    )


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
