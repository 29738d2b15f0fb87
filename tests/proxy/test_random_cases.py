"""A hundred thousand random cases a run: texts and bytes of gRPC clients. Hypothesis gives the seed
of each group of cases."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .random_cases import FAMILIES

CASES = 100_000  # of a run, at least
GROUP = 250  # cases of one seed


def run(cases: int, judge: Callable[[Random], None]) -> int:
    """Judge this many random cases; how many there were."""
    counted = 0

    @settings(max_examples=cases // GROUP)
    @given(seed=st.integers(0, 2**64 - 1))
    def group(seed: int) -> None:
        nonlocal counted
        random = Random(seed)
        for _ in range(GROUP):
            judge(random)
            counted += 1

    group()
    return counted


def test_every_text_and_message_is_read_or_refused(
    record_testsuite_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = {judge.__name__: run(cases, judge) for judge, cases in FAMILIES.items()}
    total = sum(counted.values())
    record_testsuite_property("random cases of gRPC", total)
    with capsys.disabled():
        print(f"{total:,} random cases of gRPC: {counted}")
    assert total >= CASES, counted
