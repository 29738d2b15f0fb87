"""Counts and logs changes of a broker name's master while the previous master is alive.

RocketMQ's name server takes the address that registered last and says nothing. Two masters of one
name ("split brain") then register alternately, and the route flips between them.
"""

import logging

log = logging.getLogger(__name__)

LOG_EVERY_MS = 30_000  # for each broker name; brokers register every 30 s
NAMES_MAX = 10_000  # broker names whose last log line is remembered


class MasterChanges:
    """`count` is how many such changes there were since the start."""

    def __init__(self) -> None:
        self.count = 0
        self._logged_ms: dict[str, int] = {}

    def note(self, broker_name: str, addr: str, others: tuple[str, ...], now_ms: int) -> None:
        """The master is now at `addr`, and these `others` still count as alive."""
        self.count += 1
        logged_ms = self._logged_ms.get(broker_name)
        if logged_ms is not None and now_ms - logged_ms < LOG_EVERY_MS:
            return
        if len(self._logged_ms) >= NAMES_MAX:
            self._logged_ms.clear()
        self._logged_ms[broker_name] = now_ms
        log.warning(
            "broker name %s has %d masters: %s registered now, and %s is registered, too; if both "
            "run, each takes messages that the other lacks; stop one of them",
            broker_name,
            len(others) + 1,
            addr,
            " and ".join(others),
        )
