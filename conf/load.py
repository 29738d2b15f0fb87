"""Settings from their sources to a typed, frozen value.

A daemon declares its settings as a frozen msgspec struct whose fields carry RocketMQ's key names,
types and ranges. Later sources win: defaults, NAMESRV_ADDR, the file, AEROBEE_<KEY> variables,
--set. A wrong value stops the start with one sentence; an unknown key only warns, because a file
that worked yesterday should work today.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from .sources import ConfigError, Setting, from_environment, from_file, from_options

USED = "used"
ACCEPTED = "accepted without effect"
UNKNOWN = "unknown"

NAMESRV_ADDR = "NAMESRV_ADDR"  # RocketMQ's own variable; weaker than the file, as there
KEY_SHOWN_MAX = 80  # characters of an unknown key in a warning
OTHERS = "others"  # the field that takes given keys without a field of their own

Kind = TypeVar("Kind", bound=msgspec.Struct)

_INTEGERS = {"int": 31, "long": 63}


@dataclass(frozen=True)
class Keys(Generic[Kind]):
    """All keys that a daemon's config may hold.

    `kind` declares the known ones, of which `unused` have no effect; `accepted` gives the Java type
    (int, long, boolean, double, String, ...) of further keys of RocketMQ.
    """

    kind: type[Kind]
    accepted: Mapping[str, str] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()

    @cached_property
    def fields(self) -> dict[str, msgspec.structs.FieldInfo]:
        """The declared fields by key."""
        infos = msgspec.structs.fields(self.kind)
        return {info.encode_name: info for info in infos if info.name != OTHERS}

    def state(self, key: str) -> str:
        """USED, ACCEPTED or UNKNOWN."""
        if key in self.unused:
            return ACCEPTED
        if key in self.fields:
            return USED
        return ACCEPTED if key in self.accepted else UNKNOWN

    def nearest(self, key: str) -> str | None:
        """The known key that is most similar to `key`."""
        names = {name.lower(): name for name in [*self.accepted, *self.fields]}
        found = difflib.get_close_matches(key.lower(), names, 1)
        return names[found[0]] if found else None

    def values(self, settings: Iterable[Setting]) -> tuple[dict[str, Any], list[str]]:
        """Typed values by attribute name, and warnings. ConfigError for a value that is wrong."""
        found: dict[str, Any] = {}
        others: dict[str, str] = {}
        warnings = []
        for setting in settings:
            info = self.fields.get(setting.key)
            if info is not None:
                found[info.name] = _typed(setting, info.type)
                continue
            others[setting.key] = setting.text
            kind = self.accepted.get(setting.key)
            if kind is None:
                warnings.append(self._warning(setting))
            else:
                _check_java(setting, kind)
        if others and OTHERS in self.kind.__struct_fields__:
            found[OTHERS] = others
        return found, warnings

    def _warning(self, setting: Setting) -> str:
        near = self.nearest(setting.key)
        hint = f"; did you mean {near}?" if near else ""
        key = setting.key if setting.key.isprintable() else ascii(setting.key)
        return f"unknown key {key[:KEY_SHOWN_MAX]} ({setting.source}) has no effect{hint}"


def load(
    keys: Keys[Kind],
    *,
    file: Path | None = None,
    options: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[Kind, list[str]]:
    """The settings and what there is to warn about. ConfigError with one sentence.

    `options` are the `key=value` texts of --set, `environ` is the environment (none when left out).
    """
    settings = given_settings(keys, file=file, options=options, environ=environ)
    values, warnings = keys.values(settings)
    return keys.kind(**values), warnings


def given_settings(
    keys: Keys[Kind],
    *,
    file: Path | None = None,
    options: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[Setting]:
    """The settings of all sources; the last one of a key counts."""
    environ = environ or {}
    settings = []
    namesrv = environ.get(NAMESRV_ADDR, "").strip()
    if namesrv and "namesrvAddr" in keys.fields:
        settings.append(Setting("namesrvAddr", namesrv, f"environment variable {NAMESRV_ADDR}"))
    if file is not None:
        settings += from_file(file)
    settings += from_environment(environ, [*keys.accepted, *keys.fields])
    settings += from_options(options)
    return settings


def text_of(value: object) -> str:
    """A value as it stands in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _typed(setting: Setting, kind: Any) -> Any:
    try:
        return msgspec.convert(setting.text, kind, strict=False)
    except msgspec.ValidationError:
        raise _wrong(setting, _wanted(inspect.type_info(kind))) from None


def _check_java(setting: Setting, kind: str) -> None:
    """ConfigError when a Java field of this type couldn't take the text."""
    text = setting.text
    if kind == "boolean" and text.lower() not in ("true", "false"):
        raise _wrong(setting, "true or false")
    bits = _INTEGERS.get(kind)
    if bits is not None:
        digits = text[1:] if text[:1] in ("-", "+") else text
        most = (1 << bits) - 1
        if not (digits.isascii() and digits.isdigit() and -most - 1 <= int(text) <= most):
            raise _wrong(setting, f"a whole number from {-most - 1} to {most}")
    if kind == "double":
        try:
            float(text)
        except ValueError:
            raise _wrong(setting, "a number") from None


def _wrong(setting: Setting, wanted: str) -> ConfigError:
    return ConfigError(
        f"{setting.key} is {setting.text[:200]!r} ({setting.source}), but must be {wanted}; "
        "correct it or leave it out"
    )


def _wanted(kind: inspect.Type) -> str:
    """The legal values of this type, in words."""
    if isinstance(kind, inspect.UnionType):  # with None, which stands for "not given"
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        what = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
        if kind.ge is not None and kind.le is not None:
            return f"{what} from {kind.ge} to {kind.le}"
        return f"{what} of at least {kind.ge}" if kind.ge is not None else what
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(map(str, kind.values))
    if isinstance(kind, inspect.StrType):
        length = f" of at most {kind.max_length} characters" if kind.max_length else ""
        length += ", not an empty one" if kind.min_length else ""
        return f"a text{length} that matches {kind.pattern}" if kind.pattern else f"a text{length}"
    raise AssertionError(f"settings have no {kind}")
