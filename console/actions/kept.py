"""Things that are kept for a visitor for a while, such as a preview that waits to be confirmed.

Each has a name that can't be guessed, and an owner: only who asks for it as the owner gets it. The
oldest ones make room.
"""

import secrets
from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from ...client.base.identity import now_ms

Owner = tuple[str, ...]
Thing = TypeVar("Thing")


class _Entry(NamedTuple, Generic[Thing]):
    thing: Thing
    owner: Owner
    size: int
    made_ms: int


class Kept(Generic[Thing]):
    """At most `count_max` things with `size_max` in all, each for `kept_ms`."""

    def __init__(self, count_max: int, size_max: int, kept_ms: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._kept_ms = kept_ms
        self._size = 0
        self._entries: OrderedDict[str, _Entry[Thing]] = OrderedDict()

    def keep(self, thing: Thing, owner: Owner, size: int, ident: str = "") -> str:
        """The name of a new thing: `ident`, or a new one."""
        ident = ident or secrets.token_urlsafe(18)
        self.drop(ident)
        self._entries[ident] = _Entry(thing, owner, size, now_ms())
        self._size += size
        while len(self._entries) > 1 and (
            len(self._entries) > self._count_max
            or self._size > self._size_max
            or self._is_old(next(iter(self._entries.values())))
        ):
            self.drop(next(iter(self._entries)))
        return ident

    def find(self, ident: str, owner: Owner) -> Thing | None:
        """The thing; None when it is dropped, too old, or another's."""
        found = self._entries.get(ident)
        if found is None or found.owner != owner or self._is_old(found):
            return None
        return found.thing

    def drop(self, ident: str) -> None:
        """Forget a thing."""
        found = self._entries.pop(ident, None)
        if found is not None:
            self._size -= found.size

    def _is_old(self, entry: _Entry[Thing]) -> bool:
        return entry.made_ms < now_ms() - self._kept_ms
