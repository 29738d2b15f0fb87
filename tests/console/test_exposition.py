"""Metrics as text: what Prometheus' own reader makes of it."""

from collections.abc import Iterator

from aerobee.console.exposition import Family, exposition
from prometheus_client.parser import text_string_to_metric_families


def text_of(*families: Family) -> str:
    steps = exposition(families)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return b"".join(done.value).decode()


def read(*families: Family) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text_of(*families))
        for sample in family.samples
    ]


def test_a_histogram_has_a_bucket_for_each_bound_that_counts_all_below() -> None:
    spread = ((1, 10), (2, 3, 1), 47)
    found = read(("rpc_latency", "histogram", "How long", ("code",), [(("send",), spread)]))
    assert found == [
        ("rpc_latency_bucket", {"code": "send", "le": "1.0"}, 2.0),
        ("rpc_latency_bucket", {"code": "send", "le": "10.0"}, 5.0),
        ("rpc_latency_bucket", {"code": "send", "le": "+Inf"}, 6.0),
        ("rpc_latency_count", {"code": "send"}, 6.0),
        ("rpc_latency_sum", {"code": "send"}, 47.0),
    ]


def test_a_histogram_without_labels_has_buckets_with_theirs_alone() -> None:
    found = read(("scans", "histogram", "Scans", (), [((), ((1,), (4, 0), 0))]))
    assert found[0] == ("scans_bucket", {"le": "1.0"}, 4.0)
    assert found[2] == ("scans_count", {}, 4.0)


def test_names_may_have_any_character_in_them() -> None:
    odd = 'a"b\\c\nd{e}'
    assert read(("topics", "gauge", "Text\nwith \\", ("topic",), [((odd,), 1)])) == [
        ("topics", {"topic": odd}, 1.0)
    ]


def test_a_label_without_a_value_is_left_out() -> None:
    found = read(
        ("out_total", "counter", "Out", ("topic", "is_retry"), [(("t", ""), 1), (("t", "true"), 2)])
    )
    assert found == [
        ("out_total", {"topic": "t"}, 1.0),
        ("out_total", {"topic": "t", "is_retry": "true"}, 2.0),
    ]


def test_values_are_made_while_they_are_written() -> None:
    made: list[int] = []

    def values() -> Iterator[tuple[tuple[str], int]]:
        for number in range(1_000):
            made.append(number)
            yield (str(number),), number

    steps = exposition([("topics", "gauge", "Topics", ("topic",), values())])
    next(steps)
    assert 0 < len(made) < 100
