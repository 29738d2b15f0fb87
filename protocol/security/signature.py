"""The signature that RocketMQ's access control asks of a request: HMAC-SHA1 over fields and body.

Three fields come to the custom header: AccessKey, SecurityToken where there is one, Signature. What
is signed are the values of all fields but the last, in the order of their names as Java's strings
compare, and the body behind them.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE = "Signature"
# Up to this version (4.9.3) clients add this field behind the signature's back.
UNIQUE_KEY_FIELD, UNIQUE_KEY_VERSION_MAX = "_UNIQUE_KEY_QUERY", 399


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
    """Whether a request of this version has the signature of that password, in constant time."""
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
    """What is signed; `fields` without the signature."""
    if "".join(fields).isascii():
        names = sorted(fields)  # the same order, a third of the time
    else:
        names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return "".join(map(fields.__getitem__, names)).encode() + body


def signature(secret_key: str, content: bytes) -> str:
    """HMAC-SHA1 in base64."""
    digest = hmac.digest(secret_key.encode(), content, hashlib.sha1)
    return base64.b64encode(digest).decode()
