"""Metrics in the text format of Prometheus (version 0.0.4)."""

from collections.abc import Generator, Iterable, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SAMPLES_PER_STEP = 10
SAMPLES_PER_CHUNK = 200

# A histogram: the upper bounds of its buckets, the count of each bucket and above the last bound,
# and the sum of all values.
Histogram = tuple[Sequence[float], Sequence[int], float]
Value = float | Histogram
# Name (a counter's ends in _total), "counter", "gauge" or "histogram", description, label names,
# and the values by label values; None where the next value is slow and other work may run first.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], Value] | None]]


def exposition(families: Iterable[Family]) -> Generator[None, None, list[bytes]]:
    """A generator that returns the text in chunks.

    It yields after SAMPLES_PER_STEP samples, so that lazily computed values are computed in slices
    as well.
    """
    done: list[bytes] = []
    lines: list[str] = []
    for name, kind, text, labels, values in families:
        described = text.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"# HELP {name} {described}\n# TYPE {name} {kind}\n")
        for number, sample in enumerate(values, 1):
            if number % SAMPLES_PER_STEP == 0:
                if len(lines) >= SAMPLES_PER_CHUNK:
                    done.append("".join(lines).encode())
                    lines.clear()
                yield
            if sample is None:
                continue
            label_values, value = sample
            pairs = _pairs(labels, label_values)
            if isinstance(value, tuple):
                lines.append(_histogram(name, pairs, *value))
            else:
                lines.append(f"{name}{_braces(pairs)} {float(value)}\n")
        yield
    done.append("".join(lines).encode())
    return done


def _braces(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


def _pairs(names: Sequence[str], values: Sequence[str]) -> str:
    # Prometheus treats an empty label value as a missing label.
    return ",".join(
        [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True) if value]
    )


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def _histogram(
    name: str, pairs: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> str:
    before = f"{pairs}," if pairs else ""
    lines, count = [], 0
    for bound, number in zip([*map(float, bounds), "+Inf"], counts, strict=True):
        count += number
        lines.append(f'{name}_bucket{{{before}le="{bound}"}} {float(count)}\n')
    labels = _braces(pairs)
    lines.append(f"{name}_count{labels} {float(count)}\n{name}_sum{labels} {float(total)}\n")
    return "".join(lines)
