"""Start position of a group in a queue that it has never read.

Ignored once the group has an offset.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..errors import ClientError
from .arguments import check_type

LAST = "CONSUME_FROM_LAST_OFFSET"
FIRST = "CONSUME_FROM_FIRST_OFFSET"
TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

MS_MAX = (1 << 63) - 1  # the protocol's numbers end there

Start = Literal["latest", "earliest"] | datetime | int | float | str


@dataclass(frozen=True, slots=True)
class StartFrom:
    """RocketMQ's consumeFromWhere: `where` is its name, `ms` the time for TIMESTAMP."""

    where: str
    ms: int = 0

    @classmethod
    def read(cls, start: Start) -> "StartFrom":
        """Read "latest", "earliest", a datetime, ms since the epoch, or an ISO 8601 text.

        ClientError for anything else.
        """
        if start == "latest":
            return cls(LAST)
        if start == "earliest":
            return cls(FIRST)
        if isinstance(start, str):
            try:
                start = datetime.fromisoformat(start)
            except ValueError:
                raise ClientError(
                    f"start is {start!r}; give 'latest', 'earliest', a datetime, ms since the "
                    "epoch, or a time like 2030-01-31T12:00"
                ) from None
        if isinstance(start, datetime):
            return cls(TIMESTAMP, round(start.timestamp() * 1000))
        check_type(
            "start",
            start,
            (int, float),
            "give 'latest', 'earliest', a datetime or ms since the epoch",
        )
        if not 0 <= start <= MS_MAX:
            raise ClientError(
                f"start is {start!r}; as a number it is ms since the epoch, 0 to {MS_MAX}"
            )
        return cls(TIMESTAMP, int(start))
