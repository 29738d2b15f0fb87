"""A clock that the test moves, and the rules with a state but without a journal."""

from aerobee.controller import rules
from aerobee.controller.live import LiveBrokers, Position
from aerobee.controller.replicas import Groups, apply
from aerobee.controller.rules import Decision
from aerobee.protocol.bodies.controller import SyncStateSet
from aerobee.protocol.headers import controller as headers

from ..clocks import Clock

CLUSTER, NAME = "c", "broker-a"


class State:
    """The rules with their state; events are applied as after a write to the journal."""

    def __init__(self, members: int = 0) -> None:
        self.clock = Clock()
        self.groups: Groups = {}
        self.live = LiveBrokers(self.clock)
        for broker_id in range(1, members + 1):
            self.apply_id(broker_id)
            self.beat(broker_id)

    def done(self, decision: Decision) -> Decision:
        for event in decision.events:
            apply(self.groups, event)
        return decision

    def apply_id(self, broker_id: int, check_code: str | None = None) -> Decision:
        code = check_code or f"127.0.0.1:1{broker_id:04};{broker_id}"
        header = headers.ApplyBrokerId(NAME, broker_id, code, CLUSTER)
        return self.done(rules.apply_id(self.groups, self.live, header))

    def beat(self, broker_id: int, epoch: int = 0, max_offset: int = 0, priority: int = 0) -> None:
        position = Position(epoch, max_offset, priority)
        key = (CLUSTER, NAME, broker_id)
        self.live.heard(key, f"127.0.0.1:1{broker_id:04}", f"conn{broker_id}", position, 10_000)

    def die(self, broker_id: int) -> None:
        self.live.lost(f"conn{broker_id}")
        self.clock.ms += 1_000

    def elect(
        self, broker_id: int = -1, *, designate: bool = False, unclean: bool = False
    ) -> Decision:
        header = headers.ElectMaster(CLUSTER, NAME, broker_id, designate)
        return self.done(rules.elect_master(self.groups, self.live, header, unclean=unclean))

    def alter(self, ids: list[int], **changes: int) -> Decision:
        group = self.groups[NAME]
        header = headers.AlterSyncStateSet(
            NAME,
            changes.get("master", group.master_id or 0),
            changes.get("epoch", group.master_epoch),
        )
        wanted = SyncStateSet(ids, changes.get("set_epoch", group.sync_set_epoch))
        return self.done(rules.alter_sync_set(self.groups, self.live, header, wanted))
