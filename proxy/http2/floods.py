"""Counts of cheap frames that a peer sends: what it could keep a server busy with.

Each kind has a limit within a period of 10 s. A peer over a limit gets GOAWAY, ENHANCE_YOUR_CALM.
"""

PERIOD_SECONDS = 10.0
# By kind of frame, within a period. Clients of gRPC stay far below each of them; pings count from
# the last DATA that we sent.
LIMITS = {
    "RST_STREAM": 1_000,
    "PING": 100,
    "SETTINGS": 100,
    "empty DATA": 100,
    "PRIORITY": 1_000,
    "WINDOW_UPDATE": 200_000,
    "GOAWAY": 100,
    "unknown": 1_000,
}


class Floods:
    """The counts of one connection. Times in seconds of a monotonic clock."""

    __slots__ = ("_began", "_counts")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._began = 0.0

    def sent_data(self) -> None:
        """We sent DATA: only the pings since then count. Clients of gRPC answer it with a ping, by
        which they measure bandwidth."""
        self._counts.pop("PING", None)

    def add(self, kind: str, now: float) -> str | None:
        """Count a frame; a sentence for the peer once there were too many."""
        if now - self._began >= PERIOD_SECONDS:
            self._began = now
            self._counts.clear()
        count = self._counts.get(kind, 0) + 1
        self._counts[kind] = count
        limit = LIMITS[kind]
        if count <= limit:
            return None
        return f"{count} frames {kind} in {PERIOD_SECONDS:g} s, the limit is {limit}; send fewer"
