"""Metrics as requests of the OpenTelemetry protocol (OTLP 1.x, ExportMetricsServiceRequest).

RocketMQ's exporter for Prometheus adds a unit to names that this protocol carries apart, so names
lose it here. The fields are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

import struct
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from ...protocol.codec.protobuf_fields import bytes_field, number_field, text_field
from .metrics_labels import SCOPE, Family, Spread

REQUEST_BYTES = 1 << 20  # from here on a further request: collectors take 4 MiB
POINTS_AT_ONCE = 500  # of one metric within a request
POINTS_PER_STEP = 10
DELTA, CUMULATIVE = 1, 2
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
    """When counting began, and now, ns since 1970."""

    start_ns: int
    now_ns: int


class Differences:
    """What counters and histograms grew by since the request before."""

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


def requests(
    families: Iterable[Family], times: Times, differences: Differences | None = None
) -> Generator[None, None, list[bytes]]:
    """A generator that returns the requests; it yields between a few samples. With `differences`
    counters and histograms are what they grew by."""
    done: list[bytes] = []
    metrics: list[bytes] = []
    for name, kind, text, labels, samples in families:
        points: list[bytes] = []
        for number, sample in enumerate(samples, 1):
            if number % POINTS_PER_STEP == 0:
                yield
            if sample is None:
                continue
            values, value = sample
            if differences is not None and kind != "gauge":
                value = differences.of((name, tuple(values)), value)
            points.append(_point(times, labels, values, value))
            if len(points) >= POINTS_AT_ONCE:
                metrics.append(_metric(name, kind, text, points, differences is not None))
                points.clear()
                if sum(map(len, metrics)) >= REQUEST_BYTES:
                    done.append(_request(metrics))
                    metrics.clear()
        if points:
            metrics.append(_metric(name, kind, text, points, differences is not None))
        yield
    if metrics:
        done.append(_request(metrics))
    return done


def _request(metrics: Iterable[bytes]) -> bytes:
    scope = text_field(1, SCOPE)
    of_scope = bytes_field(1, scope) + b"".join(bytes_field(2, one) for one in metrics)
    return bytes_field(1, bytes_field(1, b"") + bytes_field(2, of_scope))


def _metric(name: str, kind: str, text: str, points: Iterable[bytes], is_delta: bool) -> bytes:
    own, unit = _named(name)
    head = text_field(1, own) + text_field(2, text) + (text_field(3, unit) if unit else b"")
    data = b"".join(bytes_field(1, point) for point in points)
    kept = number_field(2, DELTA if is_delta else CUMULATIVE)
    if kind == "gauge":
        return head + bytes_field(5, data)
    if kind == "counter":
        return head + bytes_field(7, data + kept + number_field(3, 1))  # it only grows
    return head + bytes_field(9, data + kept)


def _named(name: str) -> tuple[str, str]:
    """A metric's name and unit in this protocol."""
    if name in NAMED:
        return NAMED[name]
    if name.startswith("rocketmq_"):
        for ending, unit in UNITS:
            if name.endswith(ending):
                return name.removesuffix(ending), unit
    return name, ""


def _point(times: Times, names: Sequence[str], values: Sequence[str], value: Value) -> bytes:
    when = b"\x11" + struct.pack("<Q", times.start_ns) + b"\x19" + struct.pack("<Q", times.now_ns)
    if isinstance(value, tuple):
        bounds, counts, total = value
        packed = struct.pack(f"<{len(counts)}Q", *counts)
        limits = struct.pack(f"<{len(bounds)}d", *bounds)
        figures = b"\x21" + struct.pack("<Q", sum(counts)) + b"\x29" + struct.pack("<d", total)
        return (
            when
            + figures
            + bytes_field(6, packed)
            + bytes_field(7, limits)
            + _labels(9, names, values)
        )
    if isinstance(value, int):
        figure = b"\x31" + struct.pack("<q", value)
    else:
        figure = b"\x21" + struct.pack("<d", value)
    return when + figure + _labels(7, names, values)


def _labels(number: int, names: Sequence[str], values: Sequence[str]) -> bytes:
    return b"".join(
        bytes_field(number, text_field(1, name) + bytes_field(2, text_field(1, value)))
        for name, value in zip(names, values, strict=True)
        if value and name != SCOPE_LABEL
    )
