"""Metrics of several daemons added up, as text and over sockets."""

from aerobee.console.metrics_merge import added_up, fetched, total

ONE = """# HELP in_total Messages
# TYPE in_total counter
in_total{node_id="a-0",topic="t"} 3.0
in_total{node_id="a-0",topic="only here"} 1.0
# HELP rocketmq_topic_number Topics
# TYPE rocketmq_topic_number gauge
rocketmq_topic_number{node_id="a-0"} 14.0
# HELP lag Lag
# TYPE lag gauge
lag 2.0
# HELP took_ms Times
# TYPE took_ms histogram
took_ms_bucket{le="1.0"} 1.0
took_ms_bucket{le="+Inf"} 2.0
took_ms_count 2.0
took_ms_sum 5.0
"""
OTHER = (
    ONE.replace("a-0", "a-1").replace("only here", "only there").replace("14.0", "15.0")
    + '# HELP own_total Own\n# TYPE own_total counter\nown_total{why="a \\"a-1\\" b"} 1.0\n'
)


def test_counters_histograms_and_gauges_are_added_up() -> None:
    text = added_up({"a-0": ONE, "a-1": OTHER}, "a")
    assert text.splitlines() == [
        "# HELP in_total Messages",
        "# TYPE in_total counter",
        'in_total{node_id="a",topic="t"} 6.0',
        'in_total{node_id="a",topic="only here"} 1.0',
        'in_total{node_id="a",topic="only there"} 1.0',
        "# HELP rocketmq_topic_number Topics",
        "# TYPE rocketmq_topic_number gauge",
        'rocketmq_topic_number{node_id="a"} 15.0',
        "# HELP lag Lag",
        "# TYPE lag gauge",
        "lag 4.0",
        "# HELP took_ms Times",
        "# TYPE took_ms histogram",
        'took_ms_bucket{le="1.0"} 2.0',
        'took_ms_bucket{le="+Inf"} 4.0',
        "took_ms_count 4.0",
        "took_ms_sum 10.0",
        "# HELP own_total Own",
        "# TYPE own_total counter",
        'own_total{why="a \\"a-1\\" b"} 1.0',
    ]


def test_the_total_of_a_family() -> None:
    assert total(ONE, "in_total") == 4
    assert total(ONE, "lag") == 2
    assert total(ONE, "la") == 0


async def test_a_member_that_does_not_answer_is_left_out() -> None:
    assert await fetched({"a-0": "http://127.0.0.1:1/"}) == {}
