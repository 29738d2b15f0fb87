"""Random cases for the texts and bytes of gRPC clients: each family makes one case and judges it.

A case is made by the `Random` that it is given. Half of them are well-formed and must be read as
they were written; the others are damaged, and must end in a value or in the refusal of their kind.
"""

import gzip
import string
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_to_bytes

from aerobee.protocol.message import pop_handles
from aerobee.protocol.names import is_system_topic
from aerobee.proxy.access.access import credential_of
from aerobee.proxy.handles import receipt
from aerobee.proxy.http2.call import BIDIRECTIONAL, PREFIX, UNARY, Call, Method
from aerobee.proxy.http2.status import MESSAGE_CHARS_MAX, GrpcError, encoded, seconds_of
from aerobee.proxy.messages import names, times, transactions
from aerobee.proxy.messages.status import Code, StatusError

LEGAL = "%|_-" + string.ascii_letters + string.digits
ODD = "\x00\t\n %,;=/#:.é😀\x7f\u0085漢" + LEGAL
UNITS = {"H": 3_600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
FRAME_BYTES_MAX = 300
BIG = (0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63))


def damaged(random: Random, data: bytes) -> bytes:
    """With up to three bytes changed, left out, put in, or the end cut off."""
    found = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(found) + 1)
        kind = random.randrange(4)
        if kind == 0:
            found[at : at + 1] = bytes((random.randrange(256),))
        elif kind == 1:
            del found[at : at + random.randint(1, 4)]
        elif kind == 2:
            found[at:at] = random.randbytes(random.randint(1, 4))
        else:
            del found[at:]
    return bytes(found)


def word(random: Random, letters: str, most: int) -> str:
    return "".join(random.choices(letters, k=random.randint(0, most)))


def number(random: Random) -> int:
    return random.getrandbits(random.randint(1, 62))


def refused(code: int, read: Callable[[], Any]) -> Any:
    """What is read; None when it is refused with this code and a sentence."""
    try:
        return read()
    except StatusError as wrong:
        if wrong.code != code or not wrong.message:
            raise
        return None


def deadline(random: Random) -> None:
    digits, unit = str(random.randrange(10 ** random.randint(1, 8))), random.choice(list(UNITS))
    text = f"{digits}{unit}".encode()
    assert seconds_of(text) == int(digits) * UNITS[unit]
    with suppress(ValueError):
        assert seconds_of(damaged(random, text)) >= 0


def status_message(random: Random) -> None:
    text = word(random, ODD, 40) * random.choice((1, 1, 1, 40))
    found = encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in found)
    assert unquote_to_bytes(found) == text[:MESSAGE_CHARS_MAX].encode()


def handle(random: Random) -> None:
    text = pop_handles.handle(
        number(random),
        number(random),
        number(random),
        random.randrange(9),
        random.choice("012"),
        word(random, LEGAL, 12) or "b",
        random.randrange(9),
        number(random),
    )
    full = f"{text} {random.choice((-1, number(random)))}"
    found = receipt.read(full)
    assert (found.text, found.full_text) == (text, full)
    assert receipt.read(text).log_offset == -1
    odd = damaged(random, full.encode()).decode(errors="replace")
    other = refused(Code.INVALID_RECEIPT_HANDLE, lambda: receipt.read(odd))
    if other is not None:
        assert receipt.read(other.full_text) == other


def transaction(random: Random) -> None:
    half = transactions.TransactionId(
        word(random, LEGAL, 12), number(random), number(random), word(random, ODD, 40)
    )
    assert transactions.read(half.text) == half
    odd = damaged(random, half.text.encode()).decode(errors="replace")
    other = refused(Code.INVALID_TRANSACTION_ID, lambda: transactions.read(odd))
    if other is not None:
        assert transactions.read(other.text) == other


def credentials(random: Random) -> None:
    user, signature = word(random, LEGAL, 20) or "u", random.randbytes(20).hex()
    header = (
        f"MQv2-HMAC-SHA1 Credential={user}/x, SignedHeaders=x-mq-date-time, Signature={signature}"
    )
    assert credential_of(header) == (user, signature)
    odd = damaged(random, header.encode()).decode(errors="replace")
    found = refused(Code.UNAUTHORIZED, lambda: credential_of(odd))
    assert found is None or found[0]


def name(random: Random) -> None:
    text = word(random, random.choice((LEGAL, ODD)), random.choice((10, 300)))
    is_legal = bool(text) and all(letter in LEGAL for letter in text)
    resource = SimpleNamespace(name=text)
    topic = refused(Code.ILLEGAL_TOPIC, lambda: names.topic_of(resource))
    assert (topic == text) == (is_legal and len(text) <= 127 and not is_system_topic(text)), text
    group = refused(Code.ILLEGAL_CONSUMER_GROUP, lambda: names.group_of(resource))
    is_group = is_legal and len(text) <= 255 and not text.startswith("CID_RMQ_SYS_")
    assert (group == text) == is_group, text


def duration(random: Random) -> None:
    ms = random.randrange(2**40)
    value = SimpleNamespace(seconds=0, nanos=0)
    times.set_ms(value, ms)
    assert times.to_ms(value, "it") == ms
    odd = SimpleNamespace(seconds=random.choice(BIG), nanos=random.choice((*BIG, 999_999_999)))
    found = refused(Code.BAD_REQUEST, lambda: times.to_ms(odd, "it"))
    if found is not None:
        assert abs(found) <= (times.SECONDS_MAX + 1) * 1_000


class _Connection:
    """What a call needs of its connection to take messages."""

    message_bytes_max = FRAME_BYTES_MAX

    def __init__(self) -> None:
        self.taken = 0

    def consumed(self, call: Call, count: int) -> None:
        self.taken += count


def _call(kind: int, seen: list[bytes]) -> Call:
    def parse(data: bytes) -> bytes:
        seen.append(data)
        return data

    async def nothing() -> None: ...

    connection: Any = _Connection()
    return Call(connection, 1, Method(kind, parse, nothing), {b"grpc-encoding": b"gzip"})


def frames(random: Random) -> None:
    wanted = [random.randbytes(random.randrange(40)) for _ in range(random.randint(1, 4))]
    said = bytearray()
    for each in wanted:
        packed = random.random() < 0.2
        data = gzip.compress(each, 1) if packed else each
        said += PREFIX.pack(packed, len(data)) + data
    assert _taken(random, BIDIRECTIONAL, bytes(said)) == wanted
    odd = damaged(random, bytes(said))
    for kind in (BIDIRECTIONAL, UNARY):
        with suppress(GrpcError):
            found = _taken(random, kind, odd)
            assert all(len(each) <= FRAME_BYTES_MAX for each in found)


def _taken(random: Random, kind: int, said: bytes) -> list[bytes]:
    """The messages in these bytes, which come in pieces of any size."""
    seen: list[bytes] = []
    call = _call(kind, seen)
    at = 0
    while at < len(said):
        piece = said[at : at + random.randint(1, 60)]
        call.arriving += piece
        call.take(len(piece))
        at += len(piece)
    call.end()
    return seen


# By family, how many cases a run has.
FAMILIES: dict[Callable[[Random], None], int] = {
    deadline: 20_000,
    status_message: 10_000,
    handle: 25_000,
    transaction: 20_000,
    credentials: 10_000,
    name: 10_000,
    duration: 5_000,
    frames: 5_000,
}
