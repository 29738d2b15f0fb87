"""The prologue of a replication connection where both ends have a secret (haSecret).

    slave   HELLO      32 random bytes
    master  CHALLENGE  32 random bytes
    slave   PROOF      HMAC-SHA256 over both, as the slave
    master  WELCOME    HMAC-SHA256 over both, as the master

After WELCOME the connection is one of ordinary replication. The secret is never sent, and an
end that lacks it can't go on. Instead of its next frame an end may send REFUSED with a reason. A
frame begins with bytes that no replication begins with, so an end without a secret notices.
"""

import hmac
from struct import Struct

from .errors import Malformed

MAGIC = b"\xc1AHA"  # read as a number it is negative, which no place in a log is
HEAD = Struct(
    ">"
    "4s"  # MAGIC
    "B"  # kind
    "H"  # bytes that follow
)
HELLO, CHALLENGE, PROOF, WELCOME, REFUSED = range(1, 6)
NONCE_BYTES = 32
PROOF_BYTES = 32
REASON_BYTES_MAX = 500
SIZES = {HELLO: NONCE_BYTES, CHALLENGE: NONCE_BYTES, PROOF: PROOF_BYTES, WELCOME: PROOF_BYTES}

DIFFERS = "its haSecret is another one; set the same at master and slave"
LACKING_THERE = (
    "the slave proves a secret, and the master has none; set haSecret at the master, too, or leave "
    "it out at the slave"
)
LACKING_HERE = "the master asks for a secret; set haSecret as it is at the master"


class PrologueRefused(Exception):
    """The other end lacks the secret, or has refused this one; the text is the reason."""


def frame(kind: int, payload: bytes) -> bytes:
    """The bytes of one frame."""
    return HEAD.pack(MAGIC, kind, len(payload)) + payload


def refusal(reason: str) -> bytes:
    """The frame that tells the other end why it is refused."""
    return frame(REFUSED, reason.encode()[:REASON_BYTES_MAX])


class _Side:
    """The part that both ends share: frames from a stream, in their order."""

    def __init__(self, secret: bytes, nonce: bytes, expected: int) -> None:
        self._secret = secret
        self._nonce = nonce
        self._expected: int | None = expected
        self._data = b""

    @property
    def is_done(self) -> bool:
        """True if the other end has proven the secret."""
        return self._expected is None

    @property
    def rest(self) -> bytes:
        """The bytes after the last frame: the first bytes of replication."""
        return self._data

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the other end; what to answer. Malformed when they are no prologue,
        PrologueRefused when the other end lacks the secret."""
        self._data += data
        answer = b""
        while self._expected is not None:
            if not MAGIC.startswith(self._data[: len(MAGIC)]):
                raise Malformed("it sends no proof of the secret haSecret; set it there, too")
            if len(self._data) < HEAD.size:
                break
            _, kind, size = HEAD.unpack_from(self._data)
            if kind == REFUSED and size <= REASON_BYTES_MAX:
                if len(self._data) < HEAD.size + size:
                    break
                text = self._data[HEAD.size : HEAD.size + size].decode("utf-8", "replace")
                raise PrologueRefused(f"it says: {ascii(text)[1:-1]}")
            if kind != self._expected or size != SIZES[kind]:
                raise Malformed(f"frame {kind} of {size} bytes in the place of {self._expected}")
            if len(self._data) < HEAD.size + size:
                break
            payload = self._data[HEAD.size : HEAD.size + size]
            self._data = self._data[HEAD.size + size :]
            answer += self._take(payload)
        return answer

    def _take(self, payload: bytes) -> bytes:
        raise NotImplementedError

    def _proof(self, role: bytes, slave: bytes, master: bytes) -> bytes:
        return hmac.digest(self._secret, b"aerobee-ha-1:" + role + slave + master, "sha256")

    def _check(self, given: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(given, expected):
            raise PrologueRefused(DIFFERS)


class MasterSide(_Side):
    """The master's end. `nonce` are 32 random bytes, new for each connection."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        super().__init__(secret, nonce, HELLO)
        self._slave = b""

    def _take(self, payload: bytes) -> bytes:
        if self._expected == HELLO:
            self._slave, self._expected = payload, PROOF
            return frame(CHALLENGE, self._nonce)
        self._check(payload, self._proof(b"slave", self._slave, self._nonce))
        self._expected = None
        return frame(WELCOME, self._proof(b"master", self._slave, self._nonce))


class SlaveSide(_Side):
    """The slave's end. It begins: `hello` goes out first."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        super().__init__(secret, nonce, CHALLENGE)
        self._master = b""

    @property
    def hello(self) -> bytes:
        """The first bytes of the connection."""
        return frame(HELLO, self._nonce)

    def _take(self, payload: bytes) -> bytes:
        if self._expected == CHALLENGE:
            self._master, self._expected = payload, WELCOME
            return frame(PROOF, self._proof(b"slave", self._nonce, self._master))
        self._check(payload, self._proof(b"master", self._nonce, self._master))
        self._expected = None
        return b""
