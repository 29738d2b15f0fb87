"""GET_TIMER_CHECK_POINT (60) and GET_TIMER_METRICS (61): progress and waiting messages."""

from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices, reply_of
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ..access import needs
from .timers import Timers


@dataclass(slots=True, eq=False)
class AdminTimerHandlers:
    """Answers about the timers; None where timerWheelEnable is false."""

    _timers: Timers | None
    _slices: Slices

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_TIMER_CHECK_POINT, None, self.on_check_point, needs.OUR_CLUSTER_GET),
            Row(codes.GET_TIMER_METRICS, None, self.on_metrics, needs.OUR_CLUSTER_GET),
        ]

    def on_check_point(self, header: None, command: Command, connection: Connection) -> Response:
        """The 56 bytes that config/timercheck begins with."""
        timers = self._timers
        if timers is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "The checkpoint is null: timerWheelEnable is false; switch it on",
            )
        return Response(body=timers.check_point())

    def on_metrics(self, header: None, command: Command, connection: Connection) -> LongResponse:
        """The text of config/timermetrics as it is now."""
        timers = self._timers
        if timers is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "The timer message store is null: timerWheelEnable is false; switch it on",
            )
        return self._slices.respond(reply_of(timers.metrics.text()))
