"""Sessions: in memory, each with an end.

The browser's cookie has a session's id; the console keeps only the SHA-256 of it. The token goes
into forms, so that another site can't send one of them.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from ...client.base.identity import monotonic
from .rights import Visitor

SESSIONS_MAX = 1_000
IDLE_SECONDS = 30 * 60.0
LONGEST_SECONDS = 12 * 3_600.0
ID_CHARS_MAX = 100

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Session:
    """A visitor's session. `signed` is what its requests are signed with, for a user of a cluster;
    `proof` is what the login rests on, such as the record of a file."""

    visitor: Visitor
    token: str
    began: float
    seen: float
    proof: object = None
    signed: object = field(default=None, repr=False)
    is_over: bool = False


class Sessions:
    """All sessions by the hash of their ids. `clock` gives seconds. `on_end` is called for each
    session that ends."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = monotonic,
        limit: int = SESSIONS_MAX,
        on_end: Callable[[Session], object] = lambda session: None,
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._on_end = on_end
        self._by_hash: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def open(self, visitor: Visitor, *, proof: object = None, signed: object = None) -> str:
        """The id of a new session. When the limit is reached, the one idle for longest ends."""
        self.sweep()
        if len(self._by_hash) >= self._limit:
            longest = min(self._by_hash, key=lambda key: self._by_hash[key].seen)
            log.warning(
                "%d sessions are open, the limit is %d: the one idle for longest ends",
                len(self._by_hash),
                self._limit,
            )
            self._drop(longest)
        name, now = secrets.token_urlsafe(32), self._clock()
        session = Session(visitor, secrets.token_urlsafe(32), now, now, proof, signed)
        self._by_hash[_hash(name)] = session
        return name

    def find(self, name: str, *, is_visit: bool = True) -> Session | None:
        """The session with this id, None when there is none or it is over. Without `is_visit` it
        does not count as used: a page that refreshes itself keeps no session open."""
        if not name or len(name) > ID_CHARS_MAX:
            return None
        key = _hash(name)
        found = self._by_hash.get(key)
        if found is None:
            return None
        if self._is_old(found):
            self._drop(key)
            return None
        if is_visit:
            found.seen = self._clock()
        return found

    def end(self, name: str) -> None:
        """End the session with this id."""
        if len(name) <= ID_CHARS_MAX:
            self._drop(_hash(name))

    def end_where(self, ends: Callable[[Session], bool]) -> None:
        """End the sessions of which this is true."""
        for key in [key for key, one in self._by_hash.items() if ends(one)]:
            self._drop(key)

    def sweep(self) -> None:
        """End all sessions that are idle or open for too long."""
        self.end_where(self._is_old)

    def is_open(self, session: Session) -> bool:
        """True until the session is over; for work that lasts longer than one request."""
        return not session.is_over and not self._is_old(session)

    def _is_old(self, session: Session) -> bool:
        now = self._clock()
        return now - session.seen > IDLE_SECONDS or now - session.began > LONGEST_SECONDS

    def _drop(self, key: bytes) -> None:
        session = self._by_hash.pop(key, None)
        if session is not None:
            session.is_over = True
            self._on_end(session)


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode(errors="replace")).digest()
