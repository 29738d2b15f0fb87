"""The sync state set as a master knows it: an acknowledged message is on all its members."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class SyncState:
    """Plain numbers, of brokers by their controller ids.

    `members` is the set that the controller has confirmed, with its `set_epoch`. `proposed` is the
    set that the controller was asked for and has not answered yet; it is empty otherwise.
    `confirm_offset` is the log offset in bytes up to which every counted broker has the log.
    `last_report_ms` is when each slave has reported last, by the clock of the master's timeouts.
    """

    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    proposed: frozenset[int] = frozenset()
    confirm_offset: int = 0
    last_report_ms: dict[int, int] = field(default_factory=dict)

    def counted(self) -> frozenset[int]:
        """The brokers that an acknowledgement waits for: until the controller has answered, it may
        have the old set or the proposed one, so both count."""
        return self.members | self.proposed
