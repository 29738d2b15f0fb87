"""The offset to commit is the smallest open one, for any order of settling."""

import random

import pytest
from aerobee.client.group.open_offsets import OpenOffsets


def test_the_committed_offset_is_the_smallest_open_one_at_every_step() -> None:
    for seed in range(200):
        open_and_settle(seed)


def open_and_settle(seed: int) -> None:
    dice = random.Random(seed)
    offsets, model, following = OpenOffsets(), set[int](), -1
    assert offsets.committed == -1
    for _ in range(200):
        if not model or dice.random() < 0.5:
            following = max(following, 0) + dice.choice((0, 0, 0, 1, 7))  # filtered ones leave gaps
            assert offsets.open(following), seed
            model.add(following)
            following += 1
        else:
            done = dice.choice(sorted(model))
            offsets.settle(done)
            model.remove(done)
        assert offsets.committed == min(model, default=following), seed
        assert len(offsets) == len(model), seed
        assert offsets.span == (following - 1 - min(model) if model else 0), seed


def test_an_offset_that_was_held_before_is_not_opened_again() -> None:
    offsets = OpenOffsets()
    assert offsets.open(5)
    assert not offsets.open(5)
    offsets.settle(5)
    assert not offsets.open(4)
    assert offsets.committed == 6


def test_many_at_once_are_opened_and_settled_as_one_by_one() -> None:
    for seed in range(100):
        open_and_settle_many(seed)


def open_and_settle_many(seed: int) -> None:
    dice = random.Random(seed)
    one_by_one, at_once, following, left = OpenOffsets(), OpenOffsets(), 0, list[int]()
    for _ in range(60):
        if not left or dice.random() < 0.5:
            steps = (dice.choice((0, 0, 0, 3)) for _ in range(dice.randrange(1, 6)))
            offsets = []
            for step in steps:
                offsets.append(following + step)
                following = offsets[-1] + 1
            assert at_once.open_all(offsets), seed
            assert all(one_by_one.open(each) for each in offsets), seed
            left += offsets
        else:
            count = dice.randrange(1, len(left) + 1)
            done = left[:count] if dice.random() < 0.7 else dice.sample(left, count)
            at_once.settle_all(done)
            for each in done:
                one_by_one.settle(each)
            left = [each for each in left if each not in done]
        found = at_once.committed, len(at_once)
        assert found == (one_by_one.committed, len(one_by_one)), seed


@pytest.mark.parametrize("offsets", [[], [4, 5], [6, 8, 7], [6, 6]])
def test_many_are_not_opened_at_once_when_one_was_held_before_or_they_do_not_ascend(
    offsets: list[int],
) -> None:
    held = OpenOffsets()
    held.open(5)
    assert not held.open_all(offsets)
    assert len(held) == 1
