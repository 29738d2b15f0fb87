"""The time that it takes to make or change topics and groups: two of RocketMQ's metrics."""

from collections.abc import Coroutine
from functools import wraps
from time import perf_counter
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection, Handler
from ...protocol.command import Command, Response
from ...protocol.histogram import Histogram
from ...protocol.names import is_system_topic

BOUNDS_MS = (10, 100, 1_000, 3_000, 5_000)
OF_GROUPS = (
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
)
SUCCESS, FAILURE = "success", "failure"


class CreationTimes:
    """Histograms in ms: `topics` by outcome and whether the topic is the system's, `groups` by
    outcome."""

    def __init__(self) -> None:
        self.topics: dict[tuple[str, bool], Histogram] = {}
        self.groups: dict[str, Histogram] = {}

    def timed(self, handler: Handler) -> Handler:
        """The same handler, whose requests are timed."""

        @wraps(handler)
        def timed(header: Any, command: Command, connection: Connection) -> Any:
            began = perf_counter()
            is_system = is_system_topic(getattr(header, "topic", ""))
            outcome = FAILURE
            try:
                reply = handler(header, command, connection)
                if isinstance(reply, Coroutine):
                    outcome = ""
                    return self._finished(command.code, is_system, began, reply)
                outcome = SUCCESS
                return reply
            finally:
                if outcome:
                    self._record(command.code, is_system, outcome, began)

        return timed

    async def _finished(
        self, code: int, is_system: bool, began: float, reply: Coroutine[Any, Any, Any]
    ) -> Any:
        outcome = FAILURE
        try:
            answer: Response = await reply
            outcome = SUCCESS
            return answer
        finally:
            self._record(code, is_system, outcome, began)

    def _record(self, code: int, is_system: bool, outcome: str, began: float) -> None:
        taken_ms = int((perf_counter() - began) * 1_000)
        if code in OF_GROUPS:
            if outcome == SUCCESS or code == codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
                self.groups.setdefault(outcome, Histogram(BOUNDS_MS)).record(taken_ms)
        else:
            key = outcome, is_system
            self.topics.setdefault(key, Histogram(BOUNDS_MS)).record(taken_ms)
