"""The prologue of replication: both ends prove the secret, and no other peer gets through."""

import hmac

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.ha import Chunks, Reports
from aerobee.protocol.ha_prologue import (
    CHALLENGE,
    HEAD,
    HELLO,
    MAGIC,
    PROOF,
    REASON_BYTES_MAX,
    REFUSED,
    WELCOME,
    MasterSide,
    PrologueRefused,
    SlaveSide,
    frame,
    refusal,
)

SECRET = b"a secret of both"
A, B = b"a" * 32, b"b" * 32


def test_both_ends_with_the_secret_get_through_and_never_send_it() -> None:
    slave, master = SlaveSide(SECRET, A), MasterSide(SECRET, B)
    challenge = master.feed(slave.hello)
    proof = slave.feed(challenge)
    welcome = master.feed(proof)
    assert master.is_done
    assert not slave.is_done
    assert slave.feed(welcome) == b""
    assert slave.is_done
    assert SECRET not in slave.hello + challenge + proof + welcome


def test_the_bytes_on_the_wire() -> None:
    slave, master = SlaveSide(SECRET, A), MasterSide(SECRET, B)
    assert slave.hello == b"\xc1AHA\x01\x00\x20" + A
    assert master.feed(slave.hello) == b"\xc1AHA\x02\x00\x20" + B
    proof = hmac.digest(SECRET, b"aerobee-ha-1:slave" + A + B, "sha256")
    welcome = hmac.digest(SECRET, b"aerobee-ha-1:master" + A + B, "sha256")
    assert slave.feed(frame(CHALLENGE, B)) == b"\xc1AHA\x03\x00\x20" + proof
    assert master.feed(frame(PROOF, proof)) == b"\xc1AHA\x04\x00\x20" + welcome


def test_frames_may_come_in_any_pieces_with_the_first_bytes_behind_them() -> None:
    slave, master = SlaveSide(SECRET, A), MasterSide(SECRET, B)
    challenge = b"".join(master.feed(bytes([one])) for one in slave.hello)
    proof = b"".join(slave.feed(bytes([one])) for one in challenge)
    welcome = master.feed(proof + b"a report")
    assert master.rest == b"a report"
    slave.feed(welcome + b"a chunk")
    assert slave.rest == b"a chunk"


def test_another_secret_is_refused_at_either_end() -> None:
    slave, master = SlaveSide(SECRET, A), MasterSide(b"another secret..", B)
    proof = slave.feed(master.feed(slave.hello))
    with pytest.raises(PrologueRefused, match="haSecret is another one"):
        master.feed(proof)
    with pytest.raises(PrologueRefused, match="haSecret is another one"):
        slave.feed(frame(WELCOME, bytes(32)))
    assert not master.is_done
    assert not slave.is_done


def test_a_proof_is_good_for_one_connection_and_one_role() -> None:
    slave, master = SlaveSide(SECRET, A), MasterSide(SECRET, B)
    proof = slave.feed(master.feed(slave.hello))
    again = MasterSide(SECRET, b"c" * 32)
    again.feed(slave.hello)
    with pytest.raises(PrologueRefused):
        again.feed(proof)
    with pytest.raises(PrologueRefused):  # the slave's own proof, sent back to it
        slave.feed(frame(WELCOME, proof[HEAD.size :]))


@pytest.mark.parametrize(
    "data",
    [
        bytes(8),  # what a plain slave reports first
        b"\xc1AHX",
        frame(PROOF, A),
        frame(HELLO, A[:31]),
        frame(9, A),
        frame(REFUSED, b"x" * (REASON_BYTES_MAX + 1)),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        MasterSide(SECRET, B).feed(data)


def test_the_reason_of_a_refusal_arrives_without_control_characters() -> None:
    with pytest.raises(PrologueRefused) as refused:
        SlaveSide(SECRET, A).feed(refusal("no\x1b[2Jway"))
    assert str(refused.value) == r"it says: no\x1b[2Jway"
    assert len(refusal("x" * 10_000)) == HEAD.size + REASON_BYTES_MAX


def test_plain_replication_never_begins_like_a_frame() -> None:
    with pytest.raises(Malformed, match="below 0"):
        Reports().feed(SlaveSide(SECRET, A).hello[:8])
    with pytest.raises(Malformed):
        Chunks().feed(refusal("x" * 10))
    assert MAGIC[0] >= 0x80
