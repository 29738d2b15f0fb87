"""The version of a table that brokers and name servers compare instead of the table."""

from ..wire import Int64
from .body import Body


class DataVersion(Body):
    """Two tables are the same when all three numbers are.

    `timestamp` is in ms; `state_version` counts the masters that a broker group has had.
    """

    state_version: Int64 = 0
    timestamp: Int64 = 0
    counter: Int64 = 0

    def following(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after a change at `now_ms`."""
        return DataVersion(state_version, now_ms, self.counter + 1)
