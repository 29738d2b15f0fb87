"""Limits background work per loop iteration: about as many messages as requests, more once the
broker is idle. Counted, not measured, so that it is the same on every machine.
"""

from ...protocol.aio.scheduler import Scheduler

FEW = 4  # messages moved in a step: the longest that one served client may have to wait for
SOME = 16  # at most, beside as many requests: each of them waits longer for the others
MANY = 64  # when the broker is idle
QUIET_STEPS = 16  # without a request between them
TICKS_FEW = 2  # from one step to the next: every other loop iteration is for requests alone
TICKS_MANY = 1


class Throttle:
    """Asked once a step. `ticks` says how many loop iterations later the next one may come."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.ticks = TICKS_FEW
        self._scheduler = scheduler
        self._served = scheduler.served
        self._quiet_steps = 0

    def quota(self) -> int:
        """The number of messages that the next step may move."""
        served = self._scheduler.served - self._served
        if served:
            self._served += served
            self._quiet_steps = 0
        elif self._quiet_steps < QUIET_STEPS:
            self._quiet_steps += 1
        else:
            self.ticks = TICKS_MANY
            return MANY
        self.ticks = TICKS_FEW
        return max(FEW, min(served, SOME))
