"""The JSON texts of a table's entries, each made once.

A table that is written whole at each change of one entry costs as much as all its entries, and the
writer of JSON is the dear part of that: what has not changed is taken from here. An entry is never
changed in its place: a new object takes its name.
"""

from collections.abc import Mapping

from ..protocol import fastjson
from ..protocol.bodies.body import Body

SPARE_MAX = 1_000  # texts of entries that are gone


class EntryTexts:
    """The texts of one table, as its file has them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Body, bytes]] = {}

    def put_into(self, body: Body, name: str, table: Mapping[str, Body]) -> bytes:
        """The text of `body`, whose table of this name is empty, with these entries in it."""
        empty = b'"%b":{}' % name.encode()
        around = body.encode(standard=True)
        at = around.index(empty) + len(empty) - 1
        return around[:at] + self._entries(table) + around[at:]

    def _entries(self, table: Mapping[str, Body]) -> bytes:
        known = self._known
        if len(known) > len(table) + SPARE_MAX:
            known = self._known = {name: one for name, one in known.items() if name in table}
        parts = []
        for name in sorted(table):
            entry = table[name]
            found = known.get(name)
            if found is None or found[0] is not entry:
                text = fastjson.dump({name: entry}, bare_keys=False, ascii_only=True)[1:-1]
                found = known[name] = entry, text
            parts.append(found[1])
        return b",".join(parts)
