"""Previews that wait for their confirmation: each can be used once, by its visitor."""

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ...client.base.identity import now_ms
from .action import Action, Changed, Pins, Plan

KEPT_MAX = 1_000
BYTES_MAX = 64 << 20  # of the values of all that are kept
KEPT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan as it was shown to a visitor."""

    action: Action
    cluster: str
    visitor: str
    values: dict[str, Any]
    plan: Plan
    fingerprint: str
    made_ms: int

    @property
    def pins(self) -> Pins:
        """The values that the plan keeps for its second run, at the confirmation."""
        return self.plan.pins

    @property
    def size(self) -> int:
        """The approximate bytes of the values."""
        return sum(len(one) for one in self.values.values() if isinstance(one, str))


class Previews:
    """The previews of all visitors."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Preview] = OrderedDict()

    def keep(
        self, action: Action, cluster: str, visitor: str, values: dict[str, Any], plan: Plan
    ) -> str:
        """The name of a new preview. The oldest ones make room."""
        ident = secrets.token_urlsafe(18)
        preview = Preview(action, cluster, visitor, values, plan, plan.fingerprint, now_ms())
        self._kept[ident] = preview
        while len(self._kept) > 1 and (
            len(self._kept) > KEPT_MAX
            or sum(one.size for one in self._kept.values()) > BYTES_MAX
            or next(iter(self._kept.values())).made_ms < now_ms() - KEPT_MS
        ):
            self._kept.popitem(last=False)
        return ident

    def find(self, ident: str, action: Action, cluster: str, visitor: str) -> Preview:
        """The preview; Changed when it is used, too old, or another's."""
        found = self._kept.get(ident)
        is_own = found is not None and (found.action.name, found.cluster, found.visitor) == (
            action.name,
            cluster,
            visitor,
        )
        if found is None or not is_own or found.made_ms < now_ms() - KEPT_MS:
            raise Changed(
                "this preview was used already, or is older than %(minutes)s minutes; "
                "preview it again",
                minutes=KEPT_MS // 60000,
            )
        return found

    def drop(self, ident: str) -> None:
        """Drop a preview, because it is used."""
        self._kept.pop(ident, None)
