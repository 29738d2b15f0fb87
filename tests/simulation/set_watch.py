"""What must hold of brokers in controller mode at every moment.

An epoch has one master. An older master refuses changes at the latest `LIMIT_SECONDS` after a newer
one has begun. A new master has the offsets that groups had committed `OFFSETS_SECONDS` before, if
nothing kept brokers from one another meanwhile.
"""

from collections.abc import Mapping
from typing import Any

from aerobee.broker.controlled.member import Member

from .cluster import MEMBERS, SET, SetCluster

LIMIT_SECONDS = 8.0 + 1.0  # 0.8 of controllerHeartBeatTimeoutMills, and what checking takes
# A slave asks each 2.5 s in rounds of 3 s, of which one may have begun just before.
OFFSETS_SECONDS = 7.0

Offsets = Mapping[str, Mapping[int, int]]


class SetWatch:
    """A check of the set to be called twice a second; `faults` are findings that can't be."""

    def __init__(self, cluster: SetCluster) -> None:
        self.faults: list[str] = []
        self._cluster = cluster
        self._masters: dict[int, str] = {}  # by epoch
        self._began: dict[int, float] = {}  # when each epoch was seen first
        self._calm_since = 0.0
        self._noted: list[tuple[float, float, int, Offsets]] = []

    def check(self, now: float, *, is_calm: bool) -> None:
        """Compare with what was seen before. `is_calm`: no fault is going on."""
        members = self._cluster.members()
        if not is_calm or len(members) < len(MEMBERS):
            self._calm_since = now
        for name, member in members.items():
            if member.broker is not None and member.election.is_master:
                self._see_master(now, name, member)
        master = self._cluster.master()
        if master is not None:
            self._see_offsets(now, master)

    def _see_master(self, now: float, name: str, member: Member[Any]) -> None:
        epoch = member.election.epoch
        first = self._masters.setdefault(epoch, name)
        self._began.setdefault(epoch, now)
        if first != name:
            self._fault(f"epoch {epoch} has two masters, {first} and {name}")
        newer = [began for other, began in self._began.items() if other > epoch]
        broker = member.broker
        assert broker is not None
        if newer and now - min(newer) > LIMIT_SECONDS and broker.role.change_refusal() is None:
            self._fault(f"{name} takes changes in epoch {epoch}, which a newer one has replaced")

    def _see_offsets(self, now: float, master: Member[Any]) -> None:
        assert master.broker is not None
        found = {
            key: dict(queues)
            for key, queues in master.broker.offsets.to_body().offset_table.items()
        }
        epoch = master.election.epoch
        if self._noted and self._noted[-1][2] < epoch:
            self._compare(epoch, found)
            self._noted.clear()
        self._noted.append((now, self._calm_since, epoch, found))

    def _compare(self, epoch: int, found: Offsets) -> None:
        """The offsets that were noted in a calm time which lasted long enough to copy them."""
        end, calm_since, _, _ = self._noted[-1]
        noted = [
            offsets for at, _, _, offsets in self._noted if calm_since < at <= end - OFFSETS_SECONDS
        ]
        if not noted:
            return
        for key, queues in noted[-1].items():
            for queue_id, offset in queues.items():
                restored = found.get(key, {}).get(queue_id, 0)
                if restored < offset:
                    self._fault(
                        f"{SET}: {key} {queue_id} went back from {offset} to {restored} with epoch "
                        f"{epoch}, which was committed {OFFSETS_SECONDS:g} s before"
                    )

    def _fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)
