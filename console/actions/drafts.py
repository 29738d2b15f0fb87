"""What was typed into the forms of actions, so that a form is shown filled in again: behind its
preview, in another language, and after the login when the session had ended.

A draft without a session has no owner: who has its name may read it, and what it asks for is
previewed with the rights of whoever sends it. Secrets are never kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .action import Action
from .kept import Kept, Owner

KEPT_MS = 4 * 3_600_000
KEPT_MAX, BYTES_MAX = 1_000, 16 << 20
# Of those without a session, which anybody may send.
LEFT_MAX, LEFT_BYTES_MAX = 200, 16 << 20


@dataclass(frozen=True, slots=True)
class Draft:
    """The fields of a form as they were typed, and their faults by field. `is_left`: its session
    had ended."""

    fields: dict[str, str]
    faults: dict[str, str]
    is_left: bool = False


class Drafts:
    """The drafts of all visitors."""

    def __init__(self) -> None:
        self._kept: Kept[Draft] = Kept(KEPT_MAX, BYTES_MAX, KEPT_MS)
        self._left: Kept[Draft] = Kept(LEFT_MAX, LEFT_BYTES_MAX, KEPT_MS)

    def keep(
        self,
        action: Action,
        owner: Owner,
        fields: Mapping[str, str],
        faults: Mapping[str, str] | None = None,
        ident: str = "",
    ) -> str:
        """The name of a new draft: `ident`, or a new one."""
        draft = Draft(_open(action, fields), dict(faults or {}))
        return self._kept.keep(draft, owner, _size(draft), ident)

    def leave(self, action: Action, fields: Mapping[str, str]) -> str:
        """The name of a draft without a session."""
        draft = Draft(_open(action, fields), {}, is_left=True)
        return self._left.keep(draft, (action.name,), _size(draft))

    def find(self, ident: str, action: Action, owner: Owner) -> Draft | None:
        """The draft; None when it is too old, or another's."""
        return self._kept.find(ident, owner) or self._left.find(ident, (action.name,))


def _open(action: Action, fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of an action that are no secrets."""
    return {one.name: fields.get(one.name, "") for one in action.fields if one.kind != "secret"}


def _size(draft: Draft) -> int:
    return sum(len(one.encode()) for one in draft.fields.values())
