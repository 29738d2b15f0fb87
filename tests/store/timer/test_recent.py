"""What sends tell of timer messages: in order, as far as it goes, and no more than the limit."""

from aerobee.store.timer.recent import FRESH_MAX, NUMBERS, Fresh

FAR_MS = 1 << 40


def known(*messages: tuple[int, int]) -> Fresh:
    """Messages of these offsets and slots, at ten times their offset in the log."""
    fresh = Fresh()
    for offset, slot_ms in messages:
        fresh.tell([offset, 10 * offset, 7, slot_ms], [f"T{offset}"])
    return fresh


def places(fresh: Fresh, offset: int, most: int = 100, until_ms: int = FAR_MS) -> list[int] | None:
    run = fresh.run(offset, most, 1_000, until_ms)
    if run is None:
        return None
    assert run.topics == [f"T{place // 10}" for place in run.places]
    assert len(run.lengths) == len(run.slots_ms) == len(run.places)
    found: list[int] = run.places.tolist()
    return found


def test_a_run_ends_where_one_is_not_known() -> None:
    fresh = known((5, 1_000), (6, 3_000), (7, 2_000), (9, 1_000))
    assert places(fresh, 4) is None
    assert places(fresh, 5) == [50, 60, 70]
    assert places(fresh, 5, most=2) == [50, 60]
    assert places(fresh, 5, most=0) is None
    assert places(fresh, 8) is None
    assert places(fresh, 9) == [90]


def test_a_run_has_only_slots_of_the_time_that_was_asked_for() -> None:
    fresh = known((5, 1_000), (6, 4_000), (7, 1_000), (8, 999))
    assert places(fresh, 5, until_ms=4_000) == [50]
    assert places(fresh, 6, until_ms=4_000) is None
    assert fresh.one(6) == (4_000, "T6")
    assert places(fresh, 7) == [70]
    assert places(fresh, 8) is None


def test_what_was_passed_is_forgotten_and_the_rest_stays() -> None:
    fresh = known(*((offset, 1_000) for offset in range(10)))
    assert places(fresh, 7) == [70, 80, 90]
    assert places(fresh, 6) is None
    assert fresh.one(6) is None
    assert places(fresh, 7) == [70, 80, 90], "asked again, as after a failure"
    assert places(fresh, 50) is None
    assert places(fresh, 7) is None


def test_beyond_the_limit_the_first_are_kept() -> None:
    fresh = known((0, 1_000))
    numbers = [number for offset in range(1, FRESH_MAX + 9) for number in (offset, 0, 7, 1_000)]
    fresh.tell(numbers, ["T"] * (len(numbers) // NUMBERS))
    fresh.tell([FRESH_MAX + 9, 0, 7, 1_000], ["T"])
    run = fresh.run(0, 2 * FRESH_MAX, 0, FAR_MS)
    assert run is not None
    assert len(run.topics) == len(run.places) == FRESH_MAX
    assert fresh.one(FRESH_MAX) is None
