"""Signatures checked by machine code, against the signatures of interpreted Python."""

import hmac
import random

import numpy as np
import pytest

pytest.importorskip("numba")

from aerobee.protocol import codes
from aerobee.protocol.codec.frame import encode_request
from aerobee.protocol.headers.send import SendMessage, response_parts
from aerobee.protocol.kernels.send_table import SendTable
from aerobee.protocol.kernels.signatures import IS_COMPILED, Signatures, signers
from aerobee.protocol.security.signature import SigningKey, signed, signing_key

USERS = {"shop": "secret", "a": "", "another": "s" * 100, "shopper": "secret2"}


def request(body: bytes, user: str, secret: str) -> bytes:
    header = SendMessage("g", "t", "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x010A\x02")
    fields = signed(header.to_fields(), body, user, secret)
    return encode_request(codes.SEND_MESSAGE_V2, 1, fields, body)


def read(frames: list[bytes]) -> SendTable:
    """These requests, each from another connection."""
    table = SendTable(response_parts(b"7F00000100002A9F", b"r"), is_guarded=True)
    ends = np.cumsum([len(frame) for frame in frames]).tolist()
    table.read(b"".join(frames), ends, 10_000, 1_000)
    assert table.count == len(frames)
    return table


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def signatures(request: pytest.FixtureRequest) -> Signatures:
    return Signatures(is_compiled=request.param)


def test_openssl_of_this_python_is_called() -> None:
    assert IS_COMPILED


def test_signatures_of_bodies_of_each_length_are_right(signatures: Signatures) -> None:
    for user, secret in USERS.items():
        table = read([request(bytes(size), user, secret) for size in range(1, 300)])
        names, users = signers(table)
        assert names == [user.encode()]
        assert not signatures.wrong(table, users, [signing_key(secret.encode())]).any()
        assert signatures.wrong(table, users, [signing_key(b"wrong")]).all()


def test_each_request_is_checked_with_the_key_of_its_user(signatures: Signatures) -> None:
    chance = random.Random(5)
    senders = [chance.choice(list(USERS)) for _ in range(500)]
    forged = [chance.random() < 0.2 for _ in senders]
    frames = [
        request(chance.randbytes(chance.randrange(1, 200)), user, "x" if is_forged else USERS[user])
        for user, is_forged in zip(senders, forged, strict=True)
    ]
    table = read(frames)
    names, users = signers(table)
    assert [names[number].decode() for number in users] == senders
    keys = [signing_key(USERS[name.decode()].encode()) for name in names]
    assert signatures.wrong(table, users, keys).tolist() == forged


@pytest.mark.parametrize("letter", range(28))
def test_one_wrong_letter_is_found(signatures: Signatures, letter: int) -> None:
    frame = request(b"body", "shop", "secret")
    begin = frame.index(b'"Signature":"') + len(b'"Signature":"')
    at = begin + letter
    other = b"A" if frame[at : at + 1] != b"A" else b"B"
    table = read([frame, frame[:at] + other + frame[at + 1 :]])
    _, users = signers(table)
    assert signatures.wrong(table, users, [signing_key(b"secret")]).tolist() == [False, True]


def test_a_signature_of_another_length_is_wrong(signatures: Signatures) -> None:
    fields = signed({}, b"", "shop", "secret")
    header = SendMessage("g", "t", "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x010A\x02").to_fields()
    for proof in ("a", fields["Signature"] + "=", fields["Signature"][:-1]):
        frame = encode_request(
            codes.SEND_MESSAGE_V2, 1, header | {"AccessKey": "shop", "Signature": proof}, b"b"
        )
        table = read([frame])
        assert signatures.wrong(table, signers(table)[1], [signing_key(b"secret")]).all()


def test_a_key_makes_the_digests_of_hmac() -> None:
    for secret in (b"", b"secret", b"s" * 64, b"s" * 65):
        for content in (b"", b"content", bytes(1_000)):
            assert SigningKey(secret).digest(content) == hmac.digest(secret, content, "sha1")
