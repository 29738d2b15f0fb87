"""Passwords: what is kept of them (scrypt), and whether one is right."""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import NamedTuple

CHARS_LEAST = 8
CHARS_MAX = 1_024
COST, BLOCK, TIMES = 1 << 15, 8, 1  # 32 MiB for each check
COST_MAX = 1 << 17
SALT_BYTES = HASH_BYTES = 32


class Kept(NamedTuple):
    """What is kept of a password."""

    cost: int
    block: int
    times: int
    salt: bytes
    hash: bytes

    def text(self) -> str:
        """As it stands in a file."""
        words = (str(self.cost), str(self.block), str(self.times))
        parts = (b64encode(part).decode() for part in (self.salt, self.hash))
        return "$".join(("scrypt", *words, *parts))

    def __repr__(self) -> str:
        return "Kept(…)"


def kept_of(text: str) -> Kept:
    """From a file; ValueError for a text that is none of `Kept.text`."""
    try:
        kind, cost, block, times, salt, found = text.split("$")
        kept = Kept(
            int(cost),
            int(block),
            int(times),
            b64decode(salt, validate=True),
            b64decode(found, validate=True),
        )
    except ValueError:
        kind, kept = "", Kept(0, 0, 0, b"", b"")
    is_power = kept.cost > 1 and kept.cost & (kept.cost - 1) == 0
    if kind != "scrypt" or not is_power or kept.cost > COST_MAX or kept.block != BLOCK:
        raise ValueError("its password is none of scrypt; set it again")
    if not 1 <= kept.times <= 16 or len(kept.hash) != HASH_BYTES:
        raise ValueError("its password has other sizes; set it again")
    return kept


def keep(password: str) -> Kept:
    """What to keep of a password; ValueError for a length that is refused."""
    if not CHARS_LEAST <= len(password) <= CHARS_MAX:
        raise ValueError(
            f"the password has {len(password)} characters; give {CHARS_LEAST} to {CHARS_MAX}"
        )
    salt = secrets.token_bytes(SALT_BYTES)
    return Kept(COST, BLOCK, TIMES, salt, _hash(password, COST, BLOCK, TIMES, salt))


def is_right(password: str, kept: Kept | None) -> bool:
    """Whether it is the password; without one it takes the same time and is false."""
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


NOBODY = Kept(COST, BLOCK, TIMES, bytes(SALT_BYTES), bytes(HASH_BYTES))
