"""Metrics as text, in the form that Prometheus reads (version 0.0.4)."""

from collections.abc import Generator, Iterable, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SAMPLES_PER_STEP = 10
SAMPLES_PER_PIECE = 200

# The upper bounds of a histogram's buckets, how many values lie in each and above the last, their
# sum.
Spread = tuple[Sequence[float], Sequence[int], float]
Value = float | Spread
# Name, "counter", "gauge" or "histogram", what it is, names of the labels, and the values by their
# labels, or None where the next value takes long to find and others may be served meanwhile.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], Value] | None]]


def exposition(families: Iterable[Family]) -> Generator[None, None, list[bytes]]:
    """The steps whose result is the text, in pieces. Values that are made as they are read are made
    a few at a time, too."""
    done: list[bytes] = []
    pieces: list[str] = []
    for name, kind, text, labels, values in families:
        if kind == "counter" and not name.endswith("_total"):
            name += "_total"
        described = text.replace("\\", "\\\\").replace("\n", "\\n")
        pieces.append(f"# HELP {name} {described}\n# TYPE {name} {kind}\n")
        for number, sample in enumerate(values, 1):
            if number % SAMPLES_PER_STEP == 0:
                if len(pieces) >= SAMPLES_PER_PIECE:
                    done.append("".join(pieces).encode())
                    pieces.clear()
                yield
            if sample is None:
                continue
            label_values, value = sample
            pairs = _pairs(labels, label_values)
            if isinstance(value, tuple):
                pieces.append(_histogram(name, pairs, *value))
            else:
                pieces.append(f"{name}{_braces(pairs)} {float(value)}\n")
        yield
    done.append("".join(pieces).encode())
    return done


def _braces(pairs: str) -> str:
    return f"{{{pairs}}}" if pairs else ""


def _pairs(names: Sequence[str], values: Sequence[str]) -> str:
    # To Prometheus a label without a value is the same as none.
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
