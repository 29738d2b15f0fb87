"""Exports of telemetry at an interval; metrics as lines of the log, and with more labels."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from ..broker.monitoring.metrics_labels import Family, Sample
from ..console.endpoint import InSlices
from ..console.exposition import exposition

log = logging.getLogger(__name__)

Families = Callable[[], Iterable[Family]]


def labelled(families: Iterable[Family], labels: Iterable[tuple[str, str]]) -> Iterator[Family]:
    """The same with more labels; one that a metric has by itself stays."""
    pairs = dict(labels)
    for name, kind, text, names, samples in families:
        more = {label: value for label, value in pairs.items() if label not in names}
        yield name, kind, text, (*names, *more), _with(samples, tuple(more.values()))


def _with(samples: Iterable[Sample | None], values: tuple[str, ...]) -> Iterator[Sample | None]:
    for sample in samples:
        yield sample and ((*sample[0], *values), sample[1])


class Export:
    """An export at an interval, and once more at the end."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_s = interval_ms / 1_000
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to export."""
        self._task = asyncio.create_task(self._run(), name="telemetry-export")

    async def stop(self) -> None:
        """Export once more, as RocketMQ does, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._export()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._export()
            except Exception:  # the next request may succeed
                log.exception("telemetry could not be exported")

    async def _export(self) -> None:
        raise NotImplementedError


class LogExport(Export):
    """Metrics as lines of the log, in the format of Prometheus."""

    def __init__(self, interval_ms: float, families: Families, in_slices: InSlices) -> None:
        super().__init__(interval_ms)
        self._families = families
        self._in_slices = in_slices

    async def _export(self) -> None:
        for chunk in await self._in_slices(exposition(self._families())):
            lines = chunk.decode().splitlines()
            log.info("metrics:\n%s", "\n".join(line for line in lines if line[:1] != "#"))
