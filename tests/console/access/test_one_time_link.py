"""The link that logs in once."""

import pytest
from aerobee.console.access.one_time_link import PAUSE_SECONDS, SECONDS, OneTimeLink

from ...clocks import Seconds


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def link(clock: Seconds) -> OneTimeLink:
    return OneTimeLink(clock)


def test_a_link_is_good_once(link: OneTimeLink) -> None:
    word = link.make()
    assert not link.take(word + "x")
    assert link.take(word)
    assert not link.take(word)


def test_nothing_is_a_link_before_one_is_made(link: OneTimeLink) -> None:
    assert link.wait_s == 0
    assert not link.take("")


def test_a_link_is_void_after_its_time_and_by_the_next_one(
    clock: Seconds, link: OneTimeLink
) -> None:
    first = link.make()
    clock.now += SECONDS + 1
    assert not link.take(first)
    second, third = link.make(), link.make()
    assert not link.take(second)
    assert link.take(third)


def test_another_link_can_be_asked_for_after_a_pause(clock: Seconds, link: OneTimeLink) -> None:
    link.make()
    assert link.wait_s == PAUSE_SECONDS
    clock.now += PAUSE_SECONDS
    assert link.wait_s == 0
