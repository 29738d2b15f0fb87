"""Metrics and spans as requests of the OpenTelemetry protocol, by the messages of its package.

RocketMQ's exporter for Prometheus adds a unit to names that this protocol carries apart, so names
lose it here.
"""

from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as TraceSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ..broker.monitoring.metrics_labels import SCOPE, Family, Spread
from ..protocol.message.spans import Span, SpanList

POINTS_PER_REQUEST = 4_000  # collectors take 4 MiB
SPANS_PER_REQUEST = 500
PER_STEP = 10
SERVER = TraceSpan.SPAN_KIND_SERVER
ERROR = Status.STATUS_CODE_ERROR
SCOPE_LABEL = "otel_scope_name"  # the exporter for Prometheus makes it of the scope
# Units that RocketMQ gives, by the ending of the name in Prometheus.
UNITS = (("_milliseconds", "milliseconds"), ("_seconds", "seconds"))
NAMED = {
    "rocketmq_storage_size_bytes": ("rocketmq_storage_size", "bytes"),
    "rocketmq_storage_flush_behind_bytes": ("rocketmq_storage_flush_behind_bytes", "bytes"),
    "rocketmq_storage_dispatch_behind_bytes": ("rocketmq_storage_dispatch_behind_bytes", "bytes"),
    "rocketmq_finish_message_latency_milliseconds": ("rocketmq_finish_message_latency", "ms"),
}

Value = float | Spread
Key = tuple[str, tuple[str, ...]]


class Times(NamedTuple):
    """The time when counting began, and the present time, ns since 1970."""

    start_ns: int
    now_ns: int


class Differences:
    """The growth of counters and histograms since the previous request."""

    def __init__(self) -> None:
        self._before: dict[Key, Value] = {}

    def of(self, key: Key, value: Value) -> Value:
        """The growth, the whole value for a new series and one that began again."""
        before = self._before.get(key)
        if isinstance(value, tuple):
            bounds, counts, total = value
            self._before[key] = (bounds, list(counts), total)
            if not isinstance(before, tuple):
                return value
            grown = [now - was for now, was in zip(counts, before[1], strict=True)]
            return value if min(grown) < 0 else (bounds, grown, total - before[2])
        self._before[key] = value
        if before is None or isinstance(before, tuple) or value < before:
            return value
        return value - before


def metric_requests(
    families: Iterable[Family], times: Times, differences: Differences | None = None
) -> Generator[None, None, list[ExportMetricsServiceRequest]]:
    """Make the requests; yields between a few samples. With `differences`, counters and histograms
    have their growth."""
    done: list[ExportMetricsServiceRequest] = []
    room = 0  # for points in the last request
    for name, kind, text, labels, samples in families:
        points: Any = None  # of this metric in the last request
        for number, sample in enumerate(samples, 1):
            if number % PER_STEP == 0:
                yield
            if sample is None:
                continue
            if room == 0:
                done.append(ExportMetricsServiceRequest())
                room, points = POINTS_PER_REQUEST, None
            if points is None:
                points = _points(done[-1], name, kind, text, is_delta=differences is not None)
            values, value = sample
            if differences is not None and kind != "gauge":
                value = differences.of((name, tuple(values)), value)
            _add_point(points, times, labels, values, value)
            room -= 1
        yield
    return done


def span_requests(spans: SpanList) -> Generator[None, None, list[ExportTraceServiceRequest]]:
    """A generator that returns what waits as requests."""
    done: list[ExportTraceServiceRequest] = []
    for number, span in enumerate(spans.take()):
        if number % SPANS_PER_REQUEST == 0:
            done.append(ExportTraceServiceRequest())
            of_resource = done[-1].resource_spans.add()
            of_resource.resource.attributes.add(key="service.name").value.string_value = "aerobee"
            scope = of_resource.scope_spans.add(scope=InstrumentationScope(name=spans.scope))
        _add_span(scope.spans, span)
        if number % PER_STEP == 0:
            yield
    return done


def _points(
    request: ExportMetricsServiceRequest, name: str, kind: str, text: str, *, is_delta: bool
) -> Any:
    """The points, none yet, of a further metric of the request."""
    if not request.resource_metrics:
        of_resource = request.resource_metrics.add(resource=Resource())
        of_resource.scope_metrics.add(scope=InstrumentationScope(name=SCOPE))
    own, unit = _named(name)
    metric = (
        request.resource_metrics[0]
        .scope_metrics[0]
        .metrics.add(name=own, description=text, unit=unit)
    )
    if kind == "gauge":
        return metric.gauge.data_points
    kept = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    if is_delta:
        kept = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    if kind == "counter":
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = kept
        return metric.sum.data_points
    metric.histogram.aggregation_temporality = kept
    return metric.histogram.data_points


def _named(name: str) -> tuple[str, str]:
    """A metric's name and unit in this protocol."""
    if name in NAMED:
        return NAMED[name]
    if name.startswith("rocketmq_"):
        for ending, unit in UNITS:
            if name.endswith(ending):
                return name.removesuffix(ending), unit
    return name, ""


def _add_point(
    points: Any, times: Times, names: Sequence[str], values: Sequence[str], value: Value
) -> None:
    point = points.add(start_time_unix_nano=times.start_ns, time_unix_nano=times.now_ns)
    if isinstance(value, int):
        point.as_int = value
    elif isinstance(value, float):
        point.as_double = value
    else:
        bounds, counts, point.sum = value
        point.count = sum(counts)
        point.bucket_counts.extend(counts)
        point.explicit_bounds.extend(bounds)
    for label, text in zip(names, values, strict=True):
        if text and label != SCOPE_LABEL:
            point.attributes.add(key=label).value.string_value = _valid(text)


def _add_span(spans: Any, span: Span) -> None:
    given = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": span.what,
        "messaging.destination.name": span.topic,
        **span.attributes,
    }
    added = spans.add(
        trace_id=span.context.trace,
        span_id=blake2b(repr(span).encode("utf-8", "replace"), digest_size=8).digest(),
        parent_span_id=span.context.parent,
        name=_valid(f"{span.what} {span.topic}"),
        kind=SERVER,
        start_time_unix_nano=span.begin_ns,
        end_time_unix_nano=span.end_ns,
    )
    for name, value in given.items():
        if isinstance(value, int):
            added.attributes.add(key=name).value.int_value = value
        elif value:
            added.attributes.add(key=name).value.string_value = _valid(value)
    if span.error:
        added.status.code = ERROR
        added.status.message = _valid(span.error)


def _valid(text: str) -> str:
    """The text with "?" for half a surrogate pair, which UTF-8 and so protobuf can't have."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
