"""How much work beside the requests a turn of the loop may hold: while somebody is served about as
many messages as requests, more once nobody has been for a while. Counted, not measured, so that it
is the same on every machine.
"""

from ...protocol.aio.scheduler import Scheduler

FEW = 4  # messages moved in a step: what somebody who is served may have to wait for
SOME = 16  # at most, when as many are served: each of them waits for the others much longer
MANY = 64  # when nobody is
QUIET_STEPS = 16  # without anybody served between them
TURNS_FEW = 2  # from one step to the next: every other turn is for requests alone
TURNS_MANY = 1


class Pace:
    """Asked once a step. `turns` says how many turns later the next one may come."""

    def __init__(self, turn: Scheduler) -> None:
        self.turns = TURNS_FEW
        self._turn = turn
        self._served = turn.served
        self._quiet_steps = 0

    def share(self) -> int:
        """How many messages the next step may move."""
        served = self._turn.served - self._served
        if served:
            self._served += served
            self._quiet_steps = 0
        elif self._quiet_steps < QUIET_STEPS:
            self._quiet_steps += 1
        else:
            self.turns = TURNS_MANY
            return MANY
        self.turns = TURNS_FEW
        return max(FEW, min(served, SOME))
