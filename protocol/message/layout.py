"""Tables of the fields of binary layouts: offsets and struct formats come from one place."""

from collections.abc import Mapping
from struct import Struct
from typing import Any

_KINDS = {"b": "i1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8"}


class Layout:
    """Fields of fixed size in a row, big-endian, by name and struct code ("i", "q", "8s" ...).

    `at` has the offset of each field in bytes, `size` is the sum of all.
    """

    def __init__(self, codes: Mapping[str, str]) -> None:
        self.codes = dict(codes)
        self.at: dict[str, int] = {}
        self.size = 0
        for name, code in codes.items():
            self.at[name] = self.size
            self.size += Struct(f">{code}").size

    @property
    def format(self) -> str:
        """The struct format of all fields, without a byte order."""
        return "".join(self.codes.values())

    @property
    def struct(self) -> Struct:
        """All fields."""
        return Struct(f">{self.format}")

    def span(self, first: str, last: str) -> Struct:
        """The fields from `first` to `last`."""
        names = list(self.codes)
        chosen = names[names.index(first) : names.index(last) + 1]
        return Struct(">" + "".join(self.codes[name] for name in chosen))

    def pick(self, *names: str) -> Struct:
        """The Struct of these fields only, in the order of the layout, starting at its first byte.

        `name.low` is the last byte of a field, `name.unsigned` the field as an unsigned number.
        """
        parts, end = [">"], 0
        for each in names:
            name, _, kind = each.partition(".")
            code, at = self.codes[name], self.at[name]
            if kind == "low":
                at += Struct(f">{code}").size - 1
                code = "B"
            elif kind == "unsigned":
                code = code.upper()
            parts += (f"{at - end}x", code)
            end = at + Struct(f">{code}").size
        return Struct("".join(parts))

    def dtype(self, *names: str, size: int = 0) -> Any:
        """The argument of `numpy.dtype` for these fields, or all; elements have `size` bytes."""
        chosen = names or tuple(self.codes)
        return {
            "names": list(chosen),
            "formats": [">" + _KINDS[self.codes[name]] for name in chosen],
            "offsets": [self.at[name] for name in chosen],
            "itemsize": size or self.size,
        }
