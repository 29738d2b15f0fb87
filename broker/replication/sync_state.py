"""The sync state set as a master knows it: an acknowledged message is on all its members.

Values and functions of them without input or output, so that tests can try every history.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class SyncState:
    """Numbers, those of brokers by their controller ids.

    `members` is the set that the controller has confirmed, with its `set_epoch`. `proposed` is the
    set that the controller was asked for and has not answered yet; it is empty otherwise.
    `is_answered`: the controller has answered the last proposal; `is_lost`: an answer to an earlier
    one never came, so that proposal may still get there.
    `confirm_offset` is the log offset in bytes up to which every counted broker has the log.
    `last_report_ms` is when each slave has reported last, by the clock of the master's timeouts.
    """

    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    proposed: frozenset[int] = frozenset()
    confirm_offset: int = 0
    last_report_ms: dict[int, int] = field(default_factory=dict)
    is_answered: bool = False
    is_lost: bool = False

    def counted(self) -> frozenset[int]:
        """The brokers that an acknowledgement waits for: until the controller has answered, it may
        have the old set or the proposed one, so both count."""
        return self.members | self.proposed

    def propose(self, wanted: frozenset[int]) -> None:
        """Note that the controller is asked for this set."""
        self.proposed |= wanted
        self.is_answered = False

    def take(self, members: frozenset[int], set_epoch: int) -> bool:
        """Take over the set that the controller has confirmed; False when it is older than the
        known one.

        A proposed set counts on where the controller has not answered: it may still get there,
        until the controller has a set with a larger number, which refuses older proposals.
        """
        if set_epoch < self.set_epoch:
            return False
        if set_epoch > self.set_epoch:
            self.is_lost = False
        if set_epoch > self.set_epoch or (self.is_answered and not self.is_lost):
            self.proposed = frozenset()
        self.members, self.set_epoch = members, set_epoch
        return True


def confirmed_end(
    own_id: int, end: int, needed: Iterable[int], ends: Mapping[int, int]
) -> int | None:
    """The end of the log that every broker of `needed` has; None when one of them is away, or when
    the master itself doesn't count, since the controller has another master.

    The master's own log ends at `end`; `ends` are the reported ends of the connected slaves, -1
    before the first report.
    """
    if own_id not in needed:
        return None
    for member in needed:
        if member != own_id:
            end = min(end, ends.get(member, -1))
    return end if end >= 0 else None


def may_join(acked: int, confirmed: int, epoch_start: int) -> bool:
    """True if a slave whose log ends at `acked` may become a member: it has all that is confirmed,
    and it has reached the epoch of this master, which begins at `epoch_start`."""
    return acked >= confirmed and acked >= epoch_start
