"""Hashes of keys, many at once, against the one-by-one form of Java's hash."""

import random

from aerobee.protocol.message.tags import string_hash
from aerobee.store.log.key_hash import key_hash, key_hashes

MIN_HASH = "polygenelubricants"  # its hash is the least int, whose absolute value is no int


def expected(text: str) -> int:
    found = abs(string_hash(text))
    return 0 if found == 1 << 31 else found


def test_keys_of_many_lengths_hash_as_one_by_one() -> None:
    random.seed(5)
    texts = [
        "".join(chr(random.randrange(1, 127)) for _ in range(random.randrange(1, 300)))
        for _ in range(500)
    ]
    assert key_hashes([text.encode() for text in texts]).tolist() == [*map(expected, texts)]


def test_keys_of_one_length_hash_as_one_by_one() -> None:
    for size in (1, 2, 34, 300):
        keys = [
            f"{number:0{size}d}"[-size:].replace("0", "é" if size == 34 else "Z")
            for number in range(500)
        ]
        assert key_hashes([key.encode() for key in keys]).tolist() == [
            key_hash(key) for key in keys
        ]


def test_keys_beyond_ascii_hash_over_utf_16_units() -> None:
    texts = ["VecTopicA#键1", "a#é", "b#😀", "plain#key"]
    assert key_hashes([text.encode() for text in texts]).tolist() == [*map(expected, texts)]


def test_the_least_hash_becomes_0() -> None:
    assert string_hash(MIN_HASH) == -(1 << 31)
    assert key_hash(MIN_HASH) == 0
    assert key_hashes([MIN_HASH.encode(), b"x"]).tolist() == [0, ord("x")]


def test_very_long_keys_and_none_at_all() -> None:
    long = "k" * 100_000
    assert key_hashes([long.encode(), b"short"]).tolist() == [expected(long), expected("short")]
    assert key_hashes([]).tolist() == []
