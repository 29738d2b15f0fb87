"""Sessions and their ends, by a clock that the tests move."""

import pytest
from aerobee.console.access.rights import Right, Visitor
from aerobee.console.access.sessions import Session, Sessions

from ...clocks import Seconds

VISITOR = Visitor("v", Right.VIEW)
MINUTE = 60.0


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def ended() -> list[Session]:
    return []


@pytest.fixture
def sessions(clock: Seconds, ended: list[Session]) -> Sessions:
    return Sessions(clock=clock, limit=3, on_end=ended.append)


def test_a_session_is_found_by_its_id_alone(sessions: Sessions) -> None:
    name = sessions.open(VISITOR)
    found = sessions.find(name)
    assert found is not None
    assert found.visitor is VISITOR
    assert found.token not in ("", name)
    for other in ("", name[:-1], name + "x", "x" * 5_000, found.token):
        assert sessions.find(other) is None


def test_a_session_ends_after_half_an_hour_without_a_visit(
    clock: Seconds, sessions: Sessions, ended: list[Session]
) -> None:
    name = sessions.open(VISITOR)
    clock.now += 29 * MINUTE
    assert sessions.find(name) is not None
    clock.now += 29 * MINUTE
    session = sessions.find(name, is_visit=False)  # a page that refreshes itself
    assert session is not None
    clock.now += 2 * MINUTE
    assert not sessions.is_open(session)
    assert sessions.find(name) is None
    assert ended == [session]
    assert session.is_over


def test_a_session_ends_after_twelve_hours_of_visits(clock: Seconds, sessions: Sessions) -> None:
    name = sessions.open(VISITOR)
    for _ in range(12 * 6):
        clock.now += 10 * MINUTE
        assert sessions.find(name) is not None
    clock.now += 1
    assert sessions.find(name) is None


def test_a_session_that_was_ended_is_void(sessions: Sessions, ended: list[Session]) -> None:
    name, other = sessions.open(VISITOR), sessions.open(VISITOR)
    sessions.end(name)
    sessions.end(name)
    assert sessions.find(name) is None
    assert sessions.find(other) is not None
    sessions.end_where(lambda session: session.visitor is VISITOR)
    assert sessions.find(other) is None
    assert len(ended) == 2


def test_one_more_than_the_limit_ends_the_one_idle_for_longest(
    clock: Seconds, sessions: Sessions
) -> None:
    names = []
    for _ in range(3):
        clock.now += 1
        names.append(sessions.open(VISITOR))
    clock.now += 1
    sessions.find(names[0])
    last = sessions.open(VISITOR)
    assert len(sessions) == 3
    found = [sessions.find(name) is not None for name in (*names, last)]
    assert found == [True, False, True, True]
