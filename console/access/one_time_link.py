"""A link that logs in once, for a console without users."""

import hashlib
import hmac
import secrets
from collections.abc import Callable

from ...client.base.identity import monotonic

SECONDS = 600.0  # a link is good for
PAUSE_SECONDS = 10.0  # between two links


class OneTimeLink:
    """The latest link; one before it is void. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._hash: bytes | None = None
        self._made = float("-inf")

    def make(self) -> str:
        """A new secret for a link; the one before is void."""
        word = secrets.token_urlsafe(32)
        self._hash, self._made = _hash(word), self._clock()
        return word

    @property
    def wait_s(self) -> float:
        """The seconds until a visitor may ask for a new link."""
        return max(0.0, self._made + PAUSE_SECONDS - self._clock())

    def take(self, word: str) -> bool:
        """True if `word` is the secret of the current link, which is then void."""
        wanted, given = self._hash or bytes(32), _hash(word)
        is_right = hmac.compare_digest(wanted, given)
        if self._hash is None or not is_right or self._clock() - self._made > SECONDS:
            return False
        self._hash = None
        return True


def _hash(word: str) -> bytes:
    return hashlib.sha256(word.encode(errors="replace")).digest()
