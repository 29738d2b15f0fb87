"""Requests of the OpenTelemetry protocol, as its own messages read them."""

from collections.abc import Iterable

from aerobee.broker.monitoring.metrics_labels import SCOPE, Family
from aerobee.protocol.message.spans import Context, Span, SpanList
from aerobee.scripts.otlp import Differences, Times, metric_requests, span_requests
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from ..steps import result_of

TIMES = Times(1_000, 2_000)
LABELS = ("otel_scope_name", "topic", "empty")
VALUES = ("broker-meter", "T", "")


def read(families: Iterable[Family], differences: Differences | None = None) -> list[Metric]:
    """The metrics of all requests."""
    found = []
    for request in result_of(metric_requests(families, TIMES, differences)):
        (resource,) = request.resource_metrics
        assert not resource.resource.attributes
        (scope,) = resource.scope_metrics
        assert scope.scope.name == SCOPE
        found += scope.metrics
    return found


def family(name: str, kind: str, value: float | tuple[list[int], list[int], float]) -> Family:
    return name, kind, "what it says", LABELS, [None, (VALUES, value)]


def test_a_gauge_a_counter_and_a_histogram() -> None:
    spread = ([1, 300], [2, 0, 1], 700.5)
    gauge, counter, histogram = read(
        [
            family("rocketmq_storage_size_bytes", "gauge", 5),
            family("rocketmq_messages_in_total", "counter", 2.5),
            family("rocketmq_rpc_latency_milliseconds", "histogram", spread),
        ]
    )
    assert (gauge.name, gauge.unit) == ("rocketmq_storage_size", "bytes")
    assert gauge.description == "what it says"
    (point,) = gauge.gauge.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_int) == (*TIMES, 5)
    assert [(one.key, one.value.string_value) for one in point.attributes] == [("topic", "T")]
    assert (counter.name, counter.unit) == ("rocketmq_messages_in_total", "")
    assert counter.sum.is_monotonic
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert counter.sum.aggregation_temporality == cumulative
    assert [one.as_double for one in counter.sum.data_points] == [2.5]
    assert (histogram.name, histogram.unit) == ("rocketmq_rpc_latency", "milliseconds")
    assert histogram.histogram.aggregation_temporality == cumulative
    (bar,) = histogram.histogram.data_points
    assert (bar.count, bar.sum, list(bar.bucket_counts)) == (3, 700.5, [2, 0, 1])
    assert list(bar.explicit_bounds) == [1, 300]
    assert [one.key for one in bar.attributes] == ["topic"]


def test_half_a_surrogate_pair_in_a_text_costs_one_character() -> None:
    (gauge,) = read([("g", "gauge", "what", ("broker",), [None, (("shop-\udc80",), 1)])])
    (point,) = gauge.gauge.data_points
    assert [one.value.string_value for one in point.attributes] == ["shop-?"]

    spans = SpanList("aerobee")
    context = Context(b"t" * 16, b"p" * 8)
    spans.add(Span(context, "store", "T\udc80", 1, 2, {"key": "\udcff"}, "\udc00"))
    (request,) = result_of(span_requests(spans))
    (span,) = request.resource_spans[0].scope_spans[0].spans
    texts = {one.key: one.value.string_value for one in span.attributes}
    assert span.name == "store T?"
    assert (texts["messaging.destination.name"], texts["key"]) == ("T?", "?")
    assert span.status.message == "?"


def test_differences_are_what_counters_grew_by_and_gauges_stay() -> None:
    differences = Differences()
    counts, counter, gauge = [2, 0], "rocketmq_messages_in_total", "rocketmq_topic_number"
    found = []
    for value in (10, 13, 4):  # at last it began again
        one, bars, other = read(
            [
                family(counter, "counter", value),
                family("h", "histogram", ([1], counts, float(value))),
                family(gauge, "gauge", value),
            ],
            differences,
        )
        delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        assert one.sum.aggregation_temporality == delta
        assert bars.histogram.aggregation_temporality == delta
        found.append(
            (
                one.sum.data_points[0].as_int,
                list(bars.histogram.data_points[0].bucket_counts),
                other.gauge.data_points[0].as_int,
            )
        )
        counts[0] += 5  # the same list: what was before must be kept apart
    assert found == [(10, [2, 0], 10), (3, [5, 0], 13), (4, [5, 0], 4)]


def test_many_points_go_into_several_requests() -> None:
    rows = [(("broker-meter", f"T{number}" * 100, ""), number) for number in range(9_000)]
    many: list[Family] = [("rocketmq_half_messages", "gauge", "x", LABELS, rows)]
    requests = result_of(metric_requests(many, TIMES))
    assert len(requests) > 2
    assert max(one.ByteSize() for one in requests) < 4 << 20
    points = [point for metric in read(many) for point in metric.gauge.data_points]
    assert [point.as_int for point in points] == list(range(9_000))
