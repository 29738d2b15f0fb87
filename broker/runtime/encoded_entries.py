"""The JSON texts of a table's entries, each encoded once.

A whole table is written into its file and into responses, and the encoding is the expensive part.
Unchanged entries are taken from here. An entry is never changed in place: a new object takes its
name.
"""

from collections.abc import Iterator, Mapping

from ...protocol.bodies.body import Body, filled
from ...protocol.codec import fastjson

SPARE_MAX = 1_000  # texts of entries that are gone


class EncodedEntries:
    """The texts of one table, as its file has them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Body, bytes]] = {}
        self._order: list[str] = []  # the names as they were sorted last

    def of(self, name: str, entry: Body) -> bytes:
        """The text of an entry with its name, without the braces around them."""
        found = self._known.get(name)
        if found is None or found[0] is not entry:
            text = fastjson.dump({name: entry}, bare_keys=False, ascii_only=True)[1:-1]
            found = self._known[name] = entry, text
        return found[1]

    def pieces(
        self, body: Body, name: str, table: Mapping[str, Body], *, standard: bool = False
    ) -> Iterator[bytes]:
        """The text of `body`, whose table of this name is empty, with these entries in it.

        `standard` is for the file, as `Body.encode` has it. The table may change between two
        pieces: deleted entries are left out, and new ones are not in the text yet.
        """
        if len(self._known) > len(table) + SPARE_MAX:
            self._known = {known: one for known, one in self._known.items() if known in table}
        return filled(body, name, self._of_all(table, standard), standard=standard)

    def _of_all(self, table: Mapping[str, Body], standard: bool) -> Iterator[bytes]:
        for name in self._sorted(table):
            entry = table.get(name)
            if entry is None:
                continue
            text = self.of(name, entry)
            if not standard and b"\\u" in text:  # only the file has no other characters
                text = fastjson.dump({name: entry})[1:-1]
            yield text

    def _sorted(self, table: Mapping[str, Body]) -> list[str]:
        # A nearly sorted list is sorted ten times as quickly.
        order = [name for name in self._order if name in table]
        if len(order) < len(table):
            order += table.keys() - set(order)
        order.sort()
        self._order = order
        return order
