"""The tries of one send: how many there were, and which brokers are not to be tried just now.

A try counts when the broker may have the message, or has refused it. When a broker can't be
connected, or says that it is not in service, nothing is stored: that costs no try, and the broker
is left alone for a while. So a send waits for a broker that restarts, until its time is up.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from ...protocol.aio.peers import PAUSE_SECONDS, PAUSE_SECONDS_MAX
from ...protocol.bodies.body import MessageQueue
from ..errors import (
    AerobeeError,
    BrokerError,
    NoRouteError,
    RequesterGoneError,
    UnreachableError,
    is_not_in_service,
)


class Tries:
    """Up to `most` tries before `deadline`, which was `timeout_s` away in the beginning."""

    def __init__(self, most: int, timeout_s: float, deadline: float) -> None:
        self.deadline = deadline
        self.failure: AerobeeError | None = None  # of the last try
        self.last: str | None = None  # the broker of the last try
        self.gone: set[MessageQueue] = set()  # queues that their brokers have no more
        self._most = most
        self._timeout_s = timeout_s
        self._counted: list[str] = []  # the brokers of the tries that count
        self._away_until: dict[str, float] = {}
        self._pauses: dict[str, float] = {}  # the last pause of each broker that was away

    def are_over(self, now: float) -> bool:
        """There may be no other try."""
        is_late = self.failure is not None and now >= self.deadline
        return is_late or len(self._counted) >= self._most

    def begin(self, broker_name: str) -> None:
        """Record the start of a try."""
        self.last = broker_name
        self._counted.append(broker_name)

    def failed(self, wrong: AerobeeError, now: float) -> None:
        """Record the failure of the last try."""
        assert self.last is not None
        self.failure = wrong
        if isinstance(wrong, RequesterGoneError):
            self._away_until[self.last] = math.inf
            return
        is_unsent = isinstance(wrong, NoRouteError) or (
            isinstance(wrong, UnreachableError) and wrong.is_unsent
        )
        is_away = isinstance(wrong, BrokerError) and is_not_in_service(wrong.code, wrong.remark)
        if not is_unsent and not is_away:
            return
        self._counted.pop()
        pause = getattr(wrong, "rest_s", 0.0)  # the connections have a pause of their own
        if not pause:
            doubled = self._pauses.get(self.last, PAUSE_SECONDS / 2) * 2
            pause = self._pauses[self.last] = min(doubled, PAUSE_SECONDS_MAX)
        self._away_until[self.last] = now + pause

    def found_gone(self, queue: MessageQueue, wrong: AerobeeError) -> None:
        """Record that the last try found its queue gone: nothing was stored, so it costs none."""
        self.failure = wrong
        self._counted.pop()
        self.gone.add(queue)

    def candidates(
        self,
        queues: Sequence[MessageQueue],
        now: float,
        broker_of: Callable[[MessageQueue], str],
    ) -> Sequence[MessageQueue]:
        """The queues whose brokers are not in a pause; `broker_of` gives the broker name of a
        queue."""
        away = self._away_until
        if not away:
            return queues
        return [each for each in queues if away.get(broker_of(each), 0.0) <= now]

    def forget_pauses(self) -> None:
        """Any broker may be tried now: the addresses are others."""
        self._away_until = {name: end for name, end in self._away_until.items() if end == math.inf}
        self._pauses.clear()

    def pause(self, broker_names: Iterable[str], now: float) -> float:
        """Seconds until one of these brokers may be tried; 0 if one may be tried now."""
        until = min((self._away_until.get(name, 0.0) for name in broker_names), default=0.0)
        return max(until - now, 0.0)

    def error(self) -> AerobeeError:
        """The exception to raise if the message isn't stored."""
        assert self.failure is not None
        count = len(self._counted)
        at = f", at {', '.join(self._counted)}" if count else ": no broker could be reached"
        tries = "1 try" if count == 1 else f"{count} tries"
        self.failure.add_note(f"{tries} within {self._timeout_s:g} s{at}")
        return self.failure
