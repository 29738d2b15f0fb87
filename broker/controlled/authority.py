"""The authority of a master to accept what changes something: sends, locks, offsets, pops and
others.

Only members of the sync state set are elected. So a master is the only one as long as all other
members report to it, or as the controllers' leader names it, or if it is alone in the set. Without
such a proof for 0.8 of controllerHeartBeatTimeoutMills it refuses changes before the controller may
elect another master. This decides only how early it refuses: responses to sends wait for every
member in any case.
"""

from collections.abc import Callable, Collection, Mapping

PART = 0.8  # of controllerHeartBeatTimeoutMills


class Authority:
    """The proofs of one master's role. `now_ms` is a monotonic clock in ms."""

    def __init__(self, own_id: int, timeout_ms: int, now_ms: Callable[[], int]) -> None:
        self.limit_ms = round(timeout_ms * PART)
        self._own_id = own_id
        self._now_ms = now_ms
        self._named_ms = now_ms()  # it is made when the leader has named this master

    def named(self, asked_ms: int) -> None:
        """Note that the leader has named this broker as the master, in the answer to a request that
        was sent at `asked_ms`."""
        self._named_ms = max(self._named_ms, asked_ms)

    def silent_ms(self, members: Collection[int], reports: Mapping[int, int]) -> int:
        """The age of the newest proof, in ms; 0 for a master that is alone in the set.

        `members` are the ids of the sync state set, the proposed ones included; `reports` has the
        time of the last report of each.
        """
        others = [one for one in members if one != self._own_id]
        if not others:
            return 0
        now = self._now_ms()
        reported = min(reports.get(one, -1) for one in others)
        return now - max(self._named_ms, reported)

    def refusal(self, members: Collection[int], reports: Mapping[int, int]) -> str | None:
        """The reason why changes are refused, in one sentence for clients; None while changes are
        accepted."""
        silent = self.silent_ms(members, reports)
        if silent < self.limit_ms:
            return None
        return (
            f"this master takes no changes: for {silent} ms neither the controller nor every other "
            f"member of its sync state set has confirmed it, the limit is {self.limit_ms} (0.8 of "
            "controllerHeartBeatTimeoutMills), so another broker may be the master; ask the name "
            "server for the route again"
        )
