"""The bytes between master and slaves in controller mode, as RocketMQ's classes lay them out."""

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.ha_auto_switch import (
    CHUNK_BYTES_MAX,
    CHUNK_HEAD,
    EPOCHS_MAX,
    Chunk,
    MasterHello,
    MasterStream,
    SlaveHello,
    SlaveStream,
    report,
)

# The layouts of AutoSwitchHAClient and AutoSwitchHAConnection, field by field.
SLAVE_HELLO = bytes.fromhex("00000001 0001 0000 0000000000000007")
MASTER_HELLO = bytes.fromhex(
    "00000001 00000018 0000000000001234 0000000300000001 000000000000000000000003 0000000000001000"
)
REPORT = bytes.fromhex("00000002 0000000000001234")
CHUNK = bytes.fromhex(
    "00000002 00000003 0000000000001231 00000003 0000000000001000 0000000000001230 616263"
)
HEARTBEAT = bytes.fromhex(
    "00000002 00000000 0000000000001234 00000003 0000000000001000 0000000000001234"
)


def test_the_packets_are_rocketmqs() -> None:
    assert SlaveHello(7, from_last_file=True, is_learner=False).encode() == SLAVE_HELLO
    assert MasterHello(0x1234, 3, ((1, 0), (3, 0x1000))).encode() == MASTER_HELLO
    assert report(0x1234) == REPORT
    assert Chunk(0x1231, 3, 0x1000, 0x1230, b"abc").encode() == CHUNK
    assert Chunk(0x1234, 3, 0x1000, 0x1234, b"").encode() == HEARTBEAT


@pytest.mark.parametrize("step", [1, 5, 12, 13, 1_000])
def test_packets_are_taken_from_pieces_of_any_size(step: int) -> None:
    data = SLAVE_HELLO + REPORT + REPORT
    stream = SlaveStream()
    found = [one for at in range(0, len(data), step) for one in stream.feed(data[at : at + step])]
    assert found == [SlaveHello(7, True, False), 0x1234, 0x1234]

    data = MASTER_HELLO + HEARTBEAT + CHUNK + HEARTBEAT
    master = MasterStream()
    packets = [one for at in range(0, len(data), step) for one in master.feed(data[at : at + step])]
    assert packets == [
        MasterHello(0x1234, 3, ((1, 0), (3, 0x1000))),
        Chunk(0x1234, 3, 0x1000, 0x1234, b""),
        Chunk(0x1231, 3, 0x1000, 0x1230, b"abc"),
        Chunk(0x1234, 3, 0x1000, 0x1234, b""),
    ]


def test_a_heartbeat_of_a_master_without_a_log_has_no_place() -> None:
    data = Chunk(-1, -1, -1, 0, b"").encode()
    assert MasterStream().feed(data) == [Chunk(-1, -1, -1, 0, b"")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes.fromhex("00000000"), "state 0"),
        (bytes.fromhex("00000003"), "state 3"),
        (report(-1), "below 0"),
    ],
)
def test_what_no_slave_sends_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        SlaveStream().feed(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1", "state 1213486160"),
        (MasterHello(-1, 1, ()).encode(), "ends at -1"),
        (bytes.fromhex("00000001 0000000d 0000000000001234 00000003"), "13 bytes of epochs"),
        (bytes.fromhex("00000001 fffffff4 0000000000001234 00000003"), "-12 bytes of epochs"),
        (
            MasterHello(0, 1, ((1, 0),) * (EPOCHS_MAX + 1)).encode()[:20],
            f"0 to {EPOCHS_MAX} epochs",
        ),
        (CHUNK_HEAD.pack(2, CHUNK_BYTES_MAX + 1, 0, 1, 0, 0), f"0 to {CHUNK_BYTES_MAX} bytes"),
        (CHUNK_HEAD.pack(2, -1, 0, 1, 0, 0), "a chunk of -1 bytes"),
        (CHUNK_HEAD.pack(2, 1, -1, 1, 0, 0), "at -1 of the log"),
        (CHUNK_HEAD.pack(2, 1, 0, -1, 0, 0), "of epoch -1"),
        (CHUNK_HEAD.pack(2, 0, -2, 1, 0, 0), "at -2 of the log"),
    ],
)
def test_what_no_master_sends_is_refused_before_its_bytes_have_come(
    data: bytes, reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        MasterStream().feed(data)


def test_the_largest_handshake_and_chunk_are_taken() -> None:
    epochs = tuple((number, number * 10) for number in range(EPOCHS_MAX))
    assert MasterStream().feed(MasterHello(0, 1, epochs).encode()) == [MasterHello(0, 1, epochs)]
    chunk = Chunk(0, 1, 0, 0, b"x" * CHUNK_BYTES_MAX)
    assert MasterStream().feed(chunk.encode()) == [chunk]
