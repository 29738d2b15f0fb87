"""How long a master goes on without a proof that it is the master."""

import pytest
from aerobee.broker.controlled.authority import Authority

from ...clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_leaders_word_counts_from_when_it_was_asked(clock: Clock) -> None:
    authority = Authority(1, 10_000, clock)
    clock.ms += 5_000
    asked_ms = clock.ms
    clock.ms += 2_000  # the answer takes as long
    authority.named(asked_ms)
    authority.named(asked_ms - 3_000)  # an older answer that comes late
    clock.ms = asked_ms + 7_999
    assert authority.refusal([1, 2], {}) is None
    clock.ms += 1
    assert "the limit is 8000" in (authority.refusal([1, 2], {}) or "")


def test_the_reports_of_all_other_members_are_a_proof(clock: Clock) -> None:
    authority = Authority(1, 10_000, clock)
    clock.ms += 60_000
    reports = {2: clock.ms - 7_999, 3: clock.ms}
    assert authority.refusal([1, 2, 3], reports) is None
    clock.ms += 1
    assert authority.refusal([1, 2, 3], reports) is not None
    assert authority.refusal([1, 3], reports) is None  # 2 is no member any more


def test_one_silent_member_is_enough_to_doubt(clock: Clock) -> None:
    authority = Authority(1, 10_000, clock)
    clock.ms += 8_000
    assert authority.refusal([1, 2, 3], {2: clock.ms}) is not None


def test_a_master_alone_in_its_set_goes_on(clock: Clock) -> None:
    authority = Authority(1, 10_000, clock)
    clock.ms += 3_600_000
    assert authority.refusal([1], {}) is None
    assert authority.refusal([], {}) is None
    assert "for 3600000 ms" in (authority.refusal([1, 2], {}) or "")


def test_a_new_master_has_the_word_of_its_election(clock: Clock) -> None:
    authority = Authority(2, 1_000, clock)
    clock.ms += 799
    assert authority.refusal([1, 2], {}) is None
    clock.ms += 1
    assert authority.refusal([1, 2], {}) is not None
