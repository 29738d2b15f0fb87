"""Settings as a person wants to see them: value, origin, and whether they do anything."""

from collections.abc import Mapping
from typing import NamedTuple

from .load import ACCEPTED, UNKNOWN, USED, Keys, Kind

DEFAULT = "default"
ORDER = (USED, ACCEPTED, UNKNOWN)


class Described(NamedTuple):
    """One key: its value, its default ("" without one), the origin of the value (`DEFAULT`, or a
    file, a variable, an option), and whether the key is used."""

    key: str
    value: str
    default: str
    origin: str
    state: str


def described(
    keys: Keys[Kind],
    values: Mapping[str, str],
    defaults: Mapping[str, str],
    origins: Mapping[str, str],
) -> list[Described]:
    """All keys: the used ones first, the unknown ones last, so that both are seen."""
    found = [
        Described(
            key,
            values.get(key, ""),
            defaults.get(key, ""),
            origins.get(key, DEFAULT),
            keys.state(key),
        )
        for key in sorted({*values, *keys.accepted})
    ]
    return sorted(found, key=lambda one: ORDER.index(one.state))
