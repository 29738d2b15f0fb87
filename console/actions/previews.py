"""Previews that wait for their confirmation: each can be used once, by its visitor."""

from dataclasses import dataclass
from typing import Any

from .action import Changed, Plan
from .kept import Kept, Owner

KEPT_MAX = 1_000
BYTES_MAX = 64 << 20  # of the values of all that are kept
KEPT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan as it was shown to a visitor."""

    values: dict[str, Any]
    plan: Plan


class Previews:
    """The previews of all visitors."""

    def __init__(self) -> None:
        self._kept: Kept[Preview] = Kept(KEPT_MAX, BYTES_MAX, KEPT_MS)

    def keep(self, owner: Owner, values: dict[str, Any], plan: Plan) -> str:
        """The name of a new preview. The oldest ones make room."""
        size = sum(len(one) for one in values.values() if isinstance(one, str))
        return self._kept.keep(Preview(values, plan), owner, size)

    def find(self, ident: str, owner: Owner) -> Preview:
        """The preview; Changed when it is used, too old, or another's."""
        found = self._kept.find(ident, owner)
        if found is None:
            raise Changed(
                "this preview is not kept: it was used, is older than %(minutes)s minutes, or is "
                "another visitor's; preview it again",
                minutes=KEPT_MS // 60000,
            )
        return found

    def drop(self, ident: str) -> None:
        """Drop a preview, because it is used."""
        self._kept.drop(ident)
