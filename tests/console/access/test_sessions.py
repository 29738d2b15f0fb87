"""Sessions and their ends, by a clock that the tests move."""

from aerobee.console.access.rights import Right, Visitor
from aerobee.console.access.sessions import Session, Sessions

VISITOR = Visitor("v", Right.VIEW)
MINUTE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 5_000.0
        self.ended: list[Session] = []
        self.sessions = Sessions(clock=lambda: self.now, limit=3, on_end=self.ended.append)


def test_a_session_is_found_by_its_id_alone() -> None:
    clock = Clock()
    name = clock.sessions.open(VISITOR)
    found = clock.sessions.find(name)
    assert found is not None
    assert found.visitor is VISITOR
    assert found.token not in ("", name)
    for other in ("", name[:-1], name + "x", "x" * 5_000, found.token):
        assert clock.sessions.find(other) is None


def test_a_session_ends_after_half_an_hour_without_a_visit() -> None:
    clock = Clock()
    name = clock.sessions.open(VISITOR)
    clock.now += 29 * MINUTE
    assert clock.sessions.find(name) is not None
    clock.now += 29 * MINUTE
    session = clock.sessions.find(name, is_visit=False)  # a page that refreshes itself
    assert session is not None
    clock.now += 2 * MINUTE
    assert not clock.sessions.is_open(session)
    assert clock.sessions.find(name) is None
    assert clock.ended == [session]
    assert session.is_over


def test_a_session_ends_after_twelve_hours_of_visits() -> None:
    clock = Clock()
    name = clock.sessions.open(VISITOR)
    for _ in range(12 * 6):
        clock.now += 10 * MINUTE
        assert clock.sessions.find(name) is not None
    clock.now += 1
    assert clock.sessions.find(name) is None


def test_a_session_that_was_ended_is_void() -> None:
    clock = Clock()
    name, other = clock.sessions.open(VISITOR), clock.sessions.open(VISITOR)
    clock.sessions.end(name)
    clock.sessions.end(name)
    assert clock.sessions.find(name) is None
    assert clock.sessions.find(other) is not None
    clock.sessions.end_where(lambda session: session.visitor is VISITOR)
    assert clock.sessions.find(other) is None
    assert len(clock.ended) == 2


def test_one_more_than_the_limit_ends_the_one_idle_for_longest() -> None:
    clock = Clock()
    names = []
    for _ in range(3):
        clock.now += 1
        names.append(clock.sessions.open(VISITOR))
    clock.now += 1
    clock.sessions.find(names[0])
    last = clock.sessions.open(VISITOR)
    assert len(clock.sessions) == 3
    found = [clock.sessions.find(name) is not None for name in (*names, last)]
    assert found == [True, False, True, True]
