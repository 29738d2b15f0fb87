"""Figures over time: gaps are unknown, memory is bounded, steps grow instead."""

from aerobee.console.clusters.history import STEP_MS, History, Points, summed


def test_a_step_without_a_value_is_a_gap_and_the_last_value_of_a_step_counts() -> None:
    history = History()
    history.add("a", 100_000, 1.5)
    history.add("a", 104_000, 2.0)
    history.add("a", 110_000, None)
    history.add("a", 120_000, 3.0)
    assert history.points("a") == (100_000, STEP_MS, [2.0, None, 3.0])
    assert history.points("b").values == []


def test_a_series_keeps_its_span_and_begins_again_after_a_longer_gap() -> None:
    history = History(span_ms=3 * STEP_MS)
    for step in range(5):
        history.add("a", step * STEP_MS, step)
    assert history.points("a") == (2 * STEP_MS, STEP_MS, [2.0, 3.0, 4.0])
    history.add("a", 100 * STEP_MS, 7)
    assert history.points("a") == (100 * STEP_MS, STEP_MS, [7.0])
    history.add("a", 50 * STEP_MS, 8)  # the clock went back
    assert history.points("a").values == [7.0]


def test_with_too_many_points_two_steps_become_one_and_memory_stays_in_its_limit() -> None:
    limit = 20_000
    history = History(bytes_max=limit)
    for step in range(3_000):
        for key in range(5):
            history.add(key, step * STEP_MS, step + key)
        assert history.bytes <= limit
    assert history.step_ms > STEP_MS
    found = history.points(0)
    assert found.first_ms == 0
    assert found.values[-1] == 2_999
    assert None not in found.values


def test_a_forgotten_series_gives_its_memory_back() -> None:
    history = History()
    history.add("a", 0, 1)
    history.forget({"a", "b"})
    assert history.bytes == 0


def test_series_are_summed_over_the_last_of_their_time() -> None:
    first = Points(10 * STEP_MS, STEP_MS, [1.0, 2.0, 3.0, None])
    later = Points(12 * STEP_MS, STEP_MS, [10.0, None, 20.0])
    found = summed([first, later, Points(0, STEP_MS, [])], 1_000 * STEP_MS)
    assert found == Points(10 * STEP_MS, STEP_MS, [1.0, 2.0, 13.0, None, 20.0])
    assert summed([first, later], 2 * STEP_MS) == Points(13 * STEP_MS, STEP_MS, [None, 20.0])
    assert summed([], STEP_MS) == Points(0, STEP_MS, [])


def test_too_many_points_become_means_at_places_of_the_clock() -> None:
    one = Points(11 * STEP_MS, STEP_MS, [1.0, 2.0, 4.0, None, 6.0])
    found = summed([one], 1_000 * STEP_MS, points_max=3)
    assert found == Points(10 * STEP_MS, 2 * STEP_MS, [1.0, 3.0, 6.0])
    assert found.step_ms * len(found.values) >= 5 * STEP_MS
