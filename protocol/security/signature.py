"""The signature that RocketMQ's access control asks of a request: HMAC-SHA1 over fields and body.

Three fields come to the custom header: AccessKey, SecurityToken where there is one, Signature. What
is signed are the values of all fields but the last, in the order of their names as Java's strings
compare, and the body behind them.
"""

import base64
import functools
import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE = "Signature"
# Up to this version (4.9.3) clients add this field behind the signature's back.
UNIQUE_KEY_FIELD, UNIQUE_KEY_VERSION_MAX = "_UNIQUE_KEY_QUERY", 399
BLOCK_BYTES = 64  # of SHA-1
KEYS_MAX = 1_024  # passwords whose blocks are kept


def signed(
    fields: Mapping[str, str] | None,
    body: bytes,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> dict[str, str]:
    """The custom header with the three fields."""
    found = dict(fields or {})
    found.pop(SIGNATURE, None)
    found[ACCESS_KEY] = access_key
    if security_token:
        found[SECURITY_TOKEN] = security_token
    found[SIGNATURE] = signature(secret_key, signed_content(found, body))
    return found


def is_signed(fields: Mapping[str, str], body: bytes, version: int, secret_key: str) -> bool:
    """True if a request of this version has the signature of that password, in constant time."""
    content = {key: value for key, value in fields.items() if key != SIGNATURE}
    if version <= UNIQUE_KEY_VERSION_MAX:
        content.pop(UNIQUE_KEY_FIELD, None)
    try:
        expected = signature(secret_key, signed_content(content, body)).encode()
        given = fields.get(SIGNATURE, "").encode()
    except ValueError:  # half of a character that has two, which has no bytes
        return False
    return hmac.compare_digest(expected, given)


def signed_content(fields: Mapping[str, str], body: bytes) -> bytes:
    """The bytes that are signed; `fields` without the signature."""
    if "".join(fields).isascii():
        names = sorted(fields)  # the same order, a third of the time
    else:
        names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return "".join(map(fields.__getitem__, names)).encode() + body


def signature(secret_key: str, content: bytes) -> str:
    """HMAC-SHA1 in base64."""
    return base64.b64encode(signing_key(secret_key.encode()).digest(content)).decode()


class SigningKey:
    """HMAC-SHA1 with one password. Its two `blocks` are hashed once, which makes a digest cost half
    of what `hmac.digest` takes."""

    __slots__ = ("_inner", "_outer", "blocks")

    def __init__(self, secret: bytes) -> None:
        if len(secret) > BLOCK_BYTES:
            secret = hashlib.sha1(secret).digest()  # noqa: S324 - as HMAC has it
        block = secret.ljust(BLOCK_BYTES, b"\0")
        self.blocks = tuple(bytes(each ^ mask for each in block) for mask in (0x36, 0x5C))
        self._inner, self._outer = map(hashlib.sha1, self.blocks)

    def digest(self, content: bytes | memoryview) -> bytes:
        """The 20 bytes of the HMAC."""
        inner = self._inner.copy()
        inner.update(content)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()


@functools.lru_cache(KEYS_MAX)
def signing_key(secret: bytes) -> SigningKey:
    """The key of a password; the last ones are kept."""
    return SigningKey(secret)
