"""What a store is read in: a chunk of a queue, and the error for a part that is gone.

Separate from `store/columns/view.py`, so that a reader of pulled records loads none of the files.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..base.errors import StoreError

if TYPE_CHECKING:
    from .records import Records


class MessagesGone(StoreError):
    """Offsets were asked for that the store has no more; `first` is the first that it has."""

    def __init__(self, text: str, first: int) -> None:
        super().__init__(text)
        self.first = first


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole records, one behind another, with all messages of the offsets [start, end).

    A batch in one record that reaches over a border is there as a whole. `records` says where their
    fields lie in `data`; None where nobody has looked yet.
    """

    start: int
    end: int
    data: bytes = field(repr=False)
    records: "Records | None" = field(default=None, repr=False, compare=False)
