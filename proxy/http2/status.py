"""Status codes of gRPC, and the texts of its headers: time-outs, messages of a status."""

import re

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14

MESSAGE_CHARS_MAX = 1_024  # of a status
_UNITS = {b"H": 3_600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")


class GrpcError(Exception):
    """A call ends with this status instead of an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def seconds_of(text: bytes) -> float:
    """The seconds in a grpc-timeout; ValueError for any other text."""
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise ValueError(
            f"grpc-timeout is {text[:40]!a}; give 1 to 8 digits and one of H M S m u n"
        )
    return int(found[1]) * _UNITS[found[2]]


def encoded(message: str) -> bytes:
    """A message as grpc-message carries it: UTF-8, percent-encoded outside of printable ASCII."""
    raw = message[:MESSAGE_CHARS_MAX].encode(errors="replace")
    return b"".join(
        b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in raw
    )
