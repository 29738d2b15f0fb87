"""The committed offset is the smallest open one, in whatever order messages are settled."""

import random

import pytest
from aerobee.client.consuming.open_offsets import OpenOffsets


@pytest.mark.parametrize("seed", range(200))
def test_the_committed_offset_is_the_smallest_open_one_at_every_step(seed: int) -> None:
    dice = random.Random(seed)
    offsets, model, following = OpenOffsets(), set[int](), -1
    assert offsets.committed == -1
    for _ in range(200):
        if not model or dice.random() < 0.5:
            following = max(following, 0) + dice.choice((0, 0, 0, 1, 7))  # filtered ones leave gaps
            assert offsets.open(following)
            model.add(following)
            following += 1
        else:
            done = dice.choice(sorted(model))
            offsets.settle(done)
            model.remove(done)
        assert offsets.committed == min(model, default=following)
        assert len(offsets) == len(model)
        assert offsets.span == (following - 1 - min(model) if model else 0)


def test_an_offset_that_was_held_before_is_not_opened_again() -> None:
    offsets = OpenOffsets()
    assert offsets.open(5)
    assert not offsets.open(5)
    offsets.settle(5)
    assert not offsets.open(4)
    assert offsets.committed == 6
