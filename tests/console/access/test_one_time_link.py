"""The link that logs in once."""

from aerobee.console.access.one_time_link import PAUSE_SECONDS, SECONDS, OneTimeLink


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.link = OneTimeLink(lambda: self.now)


def test_a_link_is_good_once() -> None:
    link = Clock().link
    word = link.make()
    assert not link.take(word + "x")
    assert link.take(word)
    assert not link.take(word)


def test_nothing_is_a_link_before_one_is_made() -> None:
    link = Clock().link
    assert link.wait_s == 0
    assert not link.take("")


def test_a_link_is_void_after_its_time_and_by_the_next_one() -> None:
    clock = Clock()
    first = clock.link.make()
    clock.now = SECONDS + 1
    assert not clock.link.take(first)
    second, third = clock.link.make(), clock.link.make()
    assert not clock.link.take(second)
    assert clock.link.take(third)


def test_another_link_can_be_asked_for_after_a_pause() -> None:
    clock = Clock()
    clock.link.make()
    assert clock.link.wait_s == PAUSE_SECONDS
    clock.now = PAUSE_SECONDS
    assert clock.link.wait_s == 0
