"""Epochs as values: the text of the file, and the point up to which two logs are equal."""

import pytest
from aerobee.store.epochs.entries import (
    END_MAX,
    EPOCHS_MAX,
    EpochEntry,
    consistent_point,
    decode,
    encode,
)

Pairs = list[tuple[int, int]]


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*pair) for pair in pairs)


# From the comment of RocketMQ's class CheckpointFile, which gives this crc for these lines.
JAVA_TEXT = b"2\n773307083\n7-7000\n8-8000\n"


def test_the_text_is_rocketmqs() -> None:
    assert encode(entries((7, 7000), (8, 8000))) == JAVA_TEXT
    assert decode(JAVA_TEXT) == entries((7, 7000), (8, 8000))


def test_a_crc_of_zero_is_not_checked() -> None:
    assert decode(b"1\n0\n7-7000\n") == entries((7, 7000))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "0 whole lines"),
        (b"2\n773307083", "1 whole lines"),
        (b"2\n773307083\n7-7000\n8-80", "crc is 773307083"),
        (b"2\n773307083\n7-7000\n8-8001\n", "crc is 773307083"),
        (b"3\n773307083\n7-7000\n8-8000\n", "counts 3 epochs and has 2 lines"),
        (b"0\n0\n", "counts 0 epochs"),
        (b"%d\n0\n" % (EPOCHS_MAX + 1), f"1 to {EPOCHS_MAX} can be"),
        (b"two\n0\n7-7000\n", "'two' stands where a number belongs"),
        (b"1\n0\n7-7000-8000\n", "no epoch"),
        (b"1\n0\n7:7000\n", "no epoch"),
        (b"1\n0\n-7-7000\n", "no epoch"),
        (b"1\n0\n3000000000-7000\n", "can't be"),
        (b"2\n0\n7-7000\n7-8000\n", "must grow"),
        (b"2\n0\n7-7000\n8-7000\n", "must grow"),
    ],
)
def test_any_other_text_is_refused_with_what_is_wrong(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(text)


@pytest.mark.parametrize(
    ("own", "own_end", "theirs", "their_end", "point"),
    [
        # The same epochs: the shorter log decides.
        ([(1, 0)], 500, [(1, 0)], 700, 500),
        ([(1, 0)], 700, [(1, 0)], 500, 500),
        ([(1, 0), (2, 300)], 400, [(1, 0), (2, 300)], 900, 400),
        # The master went on in a new epoch while this one wrote a tail in the old.
        ([(1, 0)], 700, [(1, 0), (2, 500)], 900, 500),
        # Both had a new one.
        ([(1, 0), (2, 500)], 700, [(1, 0), (3, 400)], 900, 400),
        ([(1, 0), (3, 400)], 700, [(1, 0), (2, 500)], 900, 400),
        # The same number at another place is another epoch.
        ([(1, 0), (2, 500)], 700, [(1, 0), (2, 600)], 900, 500),
        # Old epochs have gone with their files, here or there.
        ([(2, 500), (3, 800)], 900, [(1, 0), (2, 500)], 700, 700),
        ([(1, 0), (2, 500)], 900, [(2, 500), (4, 600)], 700, 600),
        # A power cut took messages of an epoch that is noted.
        ([(1, 0), (2, 1000)], 800, [(1, 0), (3, 900)], 950, 800),
        # Nothing in common.
        ([(1, 0)], 700, [(2, 0)], 900, None),
        ([(1, 0)], 700, [], 900, None),
        ([], 700, [(1, 0)], 900, None),
        ([(1, 0)], 0, [(1, 0)], 0, 0),
    ],
)
def test_two_logs_are_equal_up_to_the_end_of_the_newest_epoch_that_both_have(
    own: Pairs, own_end: int, theirs: Pairs, their_end: int, point: int | None
) -> None:
    assert consistent_point(entries(*own), own_end, entries(*theirs), their_end) == point


def test_no_end_is_behind_a_log() -> None:
    assert consistent_point(entries((1, 0)), END_MAX, entries((1, 0)), 5) == 5
