"""Bytes that wait: they are taken in parts, and those of an incomplete request are counted."""

import pytest
from aerobee.protocol.aio.ingress import Ingress
from aerobee.protocol.aio.memory_budget import HELD_BYTES_MIN, MemoryBudget
from aerobee.protocol.codec.frame import encode_request
from aerobee.protocol.codec.header_json import NOTHING_EXPECTED
from aerobee.protocol.command import Command


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(100_000)


@pytest.fixture
def ingress(budget: MemoryBudget) -> Ingress:
    return Ingress(budget, NOTHING_EXPECTED)


def test_a_chunk_is_cut_and_its_rest_is_the_next_one(ingress: Ingress) -> None:
    assert ingress.cut(b"abcdef", 4) == b"abcd"
    assert ingress.is_waiting
    assert ingress.cut(ingress.chunks.popleft(), 4) == b"ef"
    assert not ingress.is_waiting


def test_the_rest_of_an_incomplete_request_is_not_cut(ingress: Ingress) -> None:
    frame = encode_request(1, 1, None, b"x" * 1_000)
    assert ingress.decoder.feed(frame[:100]) == []
    assert ingress.cut(frame[100:] + b"next", 10) == frame[100:]
    assert bytes(ingress.chunks[0]) == b"next"


def test_commands_wait_in_order(ingress: Ingress) -> None:
    found = [Command(1, opaque=number) for number in range(6)]
    assert ingress.keep_commands(found[2:], 2) == found[2:4]
    ingress.put_back(found[:2])
    assert ingress.is_waiting
    assert ingress.take_commands(3) == [*found[:2], found[4]]
    assert ingress.take_commands(3) == [found[5]]
    assert not ingress.is_waiting


def test_an_incomplete_request_is_counted_until_it_is_complete(
    ingress: Ingress, budget: MemoryBudget
) -> None:
    frame = encode_request(1, 1, None, b"x" * 1_000)
    for end in (100, 900):
        ingress.decoder.feed(frame[ingress.partial_bytes : end])
        assert ingress.count_partial()
        assert (budget.bytes, budget.held) == (end, end)
    assert len(ingress.decoder.feed(frame[900:])) == 1
    assert ingress.count_partial()
    assert (budget.bytes, budget.held) == (0, 0)
    ingress.decoder.feed(frame[:100])
    ingress.count_partial()
    ingress.release()
    assert (budget.bytes, budget.held) == (0, 0)


@pytest.mark.parametrize(
    ("size", "others", "is_allowed"),
    [
        (HELD_BYTES_MIN, 200_000, True),
        (HELD_BYTES_MIN + 1, 200_000, False),
        (HELD_BYTES_MIN + 1, 100_000, True),
        (1_000, 200_000, True),
    ],
)
def test_a_large_incomplete_request_has_no_room_in_a_full_budget(
    ingress: Ingress, budget: MemoryBudget, size: int, others: int, is_allowed: bool
) -> None:
    budget.add(others)  # responses that are not read
    ingress.decoder.feed(encode_request(1, 1, None, b"x" * 100_000)[:size])
    assert ingress.count_partial() is is_allowed
    assert budget.refused == (not is_allowed)


def test_a_small_incomplete_request_has_no_room_if_others_fill_the_budget(
    ingress: Ingress, budget: MemoryBudget
) -> None:
    budget.add(200_000)
    budget.held += 100_000
    ingress.decoder.feed(encode_request(1, 1)[:20])
    assert not ingress.count_partial()
    assert ingress.count_partial(), "it has not grown since"


def test_rounds_are_counted_while_the_same_request_stays_incomplete(ingress: Ingress) -> None:
    frame = encode_request(1, 1, None, b"x" * 100)
    assert ingress.partial_rounds(is_reading=True) == 0
    ingress.decoder.feed(frame[:50])
    assert [ingress.partial_rounds(is_reading=True) for _ in range(3)] == [0, 1, 2]
    assert ingress.partial_rounds(is_reading=False) == 0
    assert ingress.partial_rounds(is_reading=True) == 1
    ingress.decoder.feed(frame[50:] + frame[:50])  # the next one
    assert ingress.partial_rounds(is_reading=True) == 0
