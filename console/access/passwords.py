"""Passwords: their hashes (scrypt), and the check of a password against one."""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import NamedTuple, Self

CHARS_LEAST = 8
CHARS_MAX = 1_024
COST, BLOCK, TIMES = 1 << 15, 8, 1  # 32 MiB for each check
COST_MAX = 1 << 17
SALT_BYTES = HASH_BYTES = 32


class PasswordHash(NamedTuple):
    """The salted scrypt hash of a password, with its parameters."""

    cost: int
    block: int
    times: int
    salt: bytes
    hash: bytes

    def text(self) -> str:
        """The text of the hash in the file of users."""
        words = (str(self.cost), str(self.block), str(self.times))
        parts = (b64encode(part).decode() for part in (self.salt, self.hash))
        return "$".join(("scrypt", *words, *parts))

    def __repr__(self) -> str:
        return "PasswordHash(…)"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `text`; ValueError for any other text."""
        try:
            kind, cost, block, times, salt, digest = text.split("$")
            parsed = cls(
                int(cost),
                int(block),
                int(times),
                b64decode(salt, validate=True),
                b64decode(digest, validate=True),
            )
        except ValueError:
            kind, parsed = "", cls(0, 0, 0, b"", b"")
        is_power = parsed.cost > 1 and parsed.cost & (parsed.cost - 1) == 0
        if kind != "scrypt" or not is_power or parsed.cost > COST_MAX or parsed.block != BLOCK:
            raise ValueError("its password is none of scrypt; set it again")
        if not 1 <= parsed.times <= 16 or len(parsed.hash) != HASH_BYTES:
            raise ValueError("its password has other sizes; set it again")
        return parsed


def hash_password(password: str) -> PasswordHash:
    """Hash a password with a new salt; ValueError for a length that is refused."""
    if not CHARS_LEAST <= len(password) <= CHARS_MAX:
        raise ValueError(
            f"the password has {len(password)} characters; give {CHARS_LEAST} to {CHARS_MAX}"
        )
    salt = secrets.token_bytes(SALT_BYTES)
    return PasswordHash(COST, BLOCK, TIMES, salt, _hash(password, COST, BLOCK, TIMES, salt))


def is_right(password: str, kept: PasswordHash | None) -> bool:
    """True if `password` matches `kept`. Without `kept` the check takes the same time and fails."""
    wanted = kept or NOBODY
    found = _hash(password, wanted.cost, wanted.block, wanted.times, wanted.salt)
    return hmac.compare_digest(found, wanted.hash) and kept is not None


def _hash(password: str, cost: int, block: int, times: int, salt: bytes) -> bytes:
    # HMAC, within scrypt, takes a text and the same with zeros at its end for one key.
    return hashlib.scrypt(
        hashlib.sha256(password.encode(errors="surrogatepass")).digest(),
        salt=salt,
        n=cost,
        r=block,
        p=times,
        maxmem=256 * cost * block,
        dklen=HASH_BYTES,
    )


NOBODY = PasswordHash(COST, BLOCK, TIMES, bytes(SALT_BYTES), bytes(HASH_BYTES))
