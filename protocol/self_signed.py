"""A key and a certificate that nobody has signed but itself, in PEM: RSA, for TLS without proof.

Only what such a certificate needs of RSA and X.509 (RFC 8017, RFC 5280). The key is as good as any
other; what is missing is somebody who says whose it is. Takes about a second.
"""

import hashlib
import math
import secrets
import time
from base64 import encodebytes

KEY_BITS = 2_048
EXPONENT = 65_537
ROUNDS = 40  # of Miller and Rabin
DAY_S = 86_400
VALID_DAYS = 3_650
_SMALL = [n for n in range(3, 2_000, 2) if all(n % each for each in range(3, math.isqrt(n) + 1, 2))]
# DER tags
INTEGER, BITS, NULL, NAME_PART, TEXT, TIME, SEQUENCE, SET = 2, 3, 5, 6, 12, 23, 48, 49
_COMMON_NAME = bytes([0x55, 4, 3])  # 2.5.4.3
_RSA = bytes([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1])  # 1.2.840.113549.1.1.1
_SHA256_WITH_RSA = _RSA[:-1] + bytes([11])
_SHA256 = bytes([0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1])  # 2.16.840.1.101.3.4.2.1


def make(now_s: float, common_name: str = "aerobee", bits: int = KEY_BITS) -> bytes:
    """Key and certificate, one behind the other, as `load_cert_chain` takes them.

    Good from a day before `now_s`, in Unix seconds, for ten years.
    """
    p, q = _prime(bits // 2), _prime(bits // 2)
    n, secret = p * q, pow(EXPONENT, -1, math.lcm(p - 1, q - 1))
    numbers = (0, n, EXPONENT, secret, p, q, secret % (p - 1), secret % (q - 1), pow(q, -1, p))
    key = _tlv(SEQUENCE, *map(_integer, numbers))
    name = _sequence(_tlv(SET, _sequence(_tlv(NAME_PART, _COMMON_NAME), _text(common_name))))
    public = _sequence(_integer(n), _integer(EXPONENT))
    signed = _sequence(
        _integer(secrets.randbits(127) + 1),
        _algorithm(_SHA256_WITH_RSA),
        name,
        _sequence(_time(now_s - DAY_S), _time(now_s + VALID_DAYS * DAY_S)),
        name,
        _sequence(_algorithm(_RSA), _tlv(BITS, b"\0", public)),
    )
    digest = _sequence(_algorithm(_SHA256), _tlv(4, hashlib.sha256(signed).digest()))
    size = bits // 8
    padded = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
    signature = pow(int.from_bytes(padded, "big"), secret, n).to_bytes(size, "big")
    certificate = _sequence(signed, _algorithm(_SHA256_WITH_RSA), _tlv(BITS, b"\0", signature))
    return _pem("RSA PRIVATE KEY", key) + _pem("CERTIFICATE", certificate)


def _prime(bits: int) -> int:
    """A prime with both top bits set, so that the product of two has twice as many."""
    while True:
        found = secrets.randbits(bits) | 3 << bits - 2 | 1
        if math.gcd(found - 1, EXPONENT) != 1 or not all(found % each for each in _SMALL):
            continue
        if _is_prime(found):
            return found


def _is_prime(number: int) -> bool:
    odd, twos = number - 1, 0
    while not odd & 1:
        odd, twos = odd >> 1, twos + 1
    for _ in range(ROUNDS):
        power = pow(secrets.randbelow(number - 3) + 2, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def _tlv(tag: int, *parts: bytes) -> bytes:
    value = b"".join(parts)
    size = len(value)
    if size < 128:
        return bytes([tag, size]) + value
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 128 | len(length)]) + length + value


def _sequence(*parts: bytes) -> bytes:
    return _tlv(SEQUENCE, *parts)


def _integer(number: int) -> bytes:
    return _tlv(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _text(text: str) -> bytes:
    return _tlv(TEXT, text.encode())


def _time(seconds: float) -> bytes:
    return _tlv(TIME, time.strftime("%y%m%d%H%M%SZ", time.gmtime(seconds)).encode())


def _algorithm(name: bytes) -> bytes:
    return _sequence(_tlv(NAME_PART, name), _tlv(NULL))


def _pem(kind: str, der: bytes) -> bytes:
    text = encodebytes(der).replace(b"\n", b"")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    head = kind.encode()
    return b"\n".join([b"-----BEGIN " + head + b"-----", *lines, b"-----END " + head + b"-----\n"])
