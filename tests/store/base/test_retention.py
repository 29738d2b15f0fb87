"""What goes and when: decided from time and disk alone."""

import time

import pytest
from aerobee.store.base.retention import ALL_BYTES, HOUR_MS, LogFile, Room, Rules, doomed, judge

RULES = Rules(hours=frozenset())
NOW_MS = 1_700_000_000_000
GIB = 1 << 30


def room(percent: int, what: str = "commit log", size: int = 100 * GIB) -> Room:
    return Room(percent * size // 100, (100 - percent) * size // 100, what)


def old(hours: float, size: int = GIB) -> LogFile:
    return LogFile(NOW_MS - int(hours * HOUR_MS), size)


@pytest.mark.parametrize(
    ("used", "free", "percent"),
    [(0, 100, 0), (50, 50, 50), (501, 499, 51), (1, 10_000, 1), (100, 0, 100), (0, 0, 0)],
)
def test_a_disk_is_as_full_as_rocketmq_says_rounded_up(used: int, free: int, percent: int) -> None:
    assert Room(used, free, "").percent == percent


@pytest.mark.parametrize("percent", [30, 50, 84, 85])
def test_what_is_above_a_ratio_is_just_enough_to_get_back_to_it(percent: int) -> None:
    for used in range(0, 1_000, 7):
        found = Room(used, 1_000 - used, "")
        gone = found.above(percent)
        assert Room(used - gone, 1_000 - used + gone, "").percent <= percent
        if gone:
            assert Room(used - gone + 10, 1_000 - used + gone - 10, "").percent > percent


@pytest.mark.parametrize(
    ("percent", "is_due", "has_surplus", "is_refused", "is_clear"),
    [
        (10, False, False, False, True),
        (75, False, False, False, True),
        (76, True, False, False, True),
        (85, True, False, False, True),
        (86, True, True, False, False),
        (90, True, True, False, False),
        (91, True, True, True, False),
    ],
)
def test_at_75_85_and_90_percent_it_cleans_early_cleans_by_force_and_refuses(
    percent: int, is_due: bool, has_surplus: bool, is_refused: bool, is_clear: bool
) -> None:
    verdict = judge(RULES, [room(percent)], NOW_MS)
    found = (verdict.is_due, verdict.surplus > 0, verdict.refusal is not None, verdict.is_clear)
    assert found == (is_due, has_surplus, is_refused, is_clear)


def test_a_refusal_says_how_full_which_disk_is_and_what_to_do() -> None:
    verdict = judge(RULES, [room(50), room(97, "consume queues")], NOW_MS)
    assert verdict.refusal is not None
    for text in ("97 % of the disk of the consume queues", "90 % (diskSpaceWarning", "free some"):
        assert text in verdict.refusal
    assert verdict.surplus == ALL_BYTES


def test_nothing_goes_before_its_time_when_that_is_switched_off() -> None:
    verdict = judge(Rules(may_force=False, hours=frozenset()), [room(99)], NOW_MS)
    assert (verdict.surplus, verdict.is_due) == (0, True)
    assert verdict.refusal is not None


def test_expired_files_go_in_the_hours_said_by_the_clock_on_the_wall() -> None:
    rules = Rules(hours=frozenset({4, 23}))
    for hour in range(24):
        moment = time.mktime((2026, 5, 6, hour, 59, 59, 0, 0, -1))
        assert judge(rules, [room(10)], int(moment) * 1_000).is_due == (hour in (4, 23)), hour
    assert judge(RULES, [room(10)], NOW_MS, by_hand=True).is_due


@pytest.mark.parametrize(("given", "taken"), [(1, (10, 30, 35)), (100, (95, 85, 90))])
def test_ratios_beyond_what_rocketmq_allows_are_the_nearest_it_does(
    given: int, taken: tuple[int, int, int]
) -> None:
    rules = Rules(early_percent=given, force_percent=given, refuse_percent=given)
    assert (rules.early_percent, rules.force_percent, rules.refuse_percent) == taken


def test_expired_files_go_up_to_the_first_that_is_not() -> None:
    due = judge(RULES, [room(80)], NOW_MS)
    files = [old(100), old(72), old(71.99), old(100)]
    assert doomed(RULES, due, files, NOW_MS) == 2
    calm = judge(RULES, [room(10)], NOW_MS)
    assert doomed(RULES, calm, files, NOW_MS) == 0


def test_a_round_has_a_limit() -> None:
    due = judge(RULES, [room(99)], NOW_MS)
    assert doomed(RULES, due, [old(100)] * 30, NOW_MS) == 10
    assert doomed(Rules(files_max=3), due, [old(0)] * 30, NOW_MS) == 3


def test_young_files_go_only_until_the_disk_is_below_the_ratio() -> None:
    forced = judge(RULES, [room(88)], NOW_MS)  # three of a hundred GiB too many
    assert doomed(RULES, forced, [old(1)] * 9, NOW_MS) == 3
    assert doomed(RULES, forced, [old(1, GIB // 2)] * 9, NOW_MS) == 6
    assert doomed(RULES, forced, [old(100)] * 5 + [old(1)] * 4, NOW_MS) == 5


def test_files_whose_readers_have_not_let_go_count_as_gone() -> None:
    forced = judge(RULES, [room(88)], NOW_MS)
    assert doomed(RULES, forced, [old(1)] * 9, NOW_MS, leaving=2 * GIB) == 1
    assert doomed(RULES, forced, [old(1)] * 9, NOW_MS, leaving=3 * GIB) == 0
