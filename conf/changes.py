"""Settings that requests read and change: a frozen struct from and to `key=value` lines."""

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from ..protocol.codec import java_properties

Config = TypeVar("Config", bound=msgspec.Struct)


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
