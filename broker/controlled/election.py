"""The result of an election, seen by one member of the broker name."""

from typing import NamedTuple


class Election(NamedTuple):
    """`own_id` is this broker's id (0 before it has one), `master_id` that of the master.

    A larger `epoch` is a newer decision; 0 means that none is known. `master_address` is the
    master's for clients, "" without a master. `members` is the sync state set and `set_epoch` its
    number, as of the decision.
    """

    own_id: int
    epoch: int = 0
    master_id: int | None = None
    master_address: str = ""
    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @property
    def has_master(self) -> bool:
        """True if some broker is the master."""
        return self.master_id is not None and bool(self.master_address)

    @property
    def is_master(self) -> bool:
        """True if this broker is the master."""
        return self.has_master and self.master_id == self.own_id

    def __str__(self) -> str:
        if not self.has_master:
            return f"no master in epoch {self.epoch}"
        who = "this broker" if self.is_master else f"broker {self.master_id}"
        return f"{who} at {self.master_address} is the master of epoch {self.epoch}"
