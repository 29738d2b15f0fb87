"""The parts of timers, whatever the role of their broker."""

from collections.abc import Callable

from ...store.engine.store import MessageStore
from ..settings.config import BrokerConfig
from .timer_metrics import TimerMetrics
from .timer_state import TimerState
from .timer_tally import TimerTally
from .wheel_intake import WheelIntake


class TimerParts:
    """The files, the counts, and the way into the wheel. With `keeps_counts` the counts of topics
    follow the work here; else they come from elsewhere."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        state: TimerState,
        metrics: TimerMetrics,
        *,
        keeps_counts: bool,
    ) -> None:
        self.store = store
        self.state = state
        self.metrics = metrics
        self.tally = TimerTally(state, metrics if keeps_counts else None)
        self.intake = WheelIntake(config, store, state, self.tally)


def open_timer_parts(
    config: BrokerConfig, store: MessageStore, now_ms: Callable[[], int], *, keeps_counts: bool
) -> TimerParts | None:
    """The parts for a store, as the last stop or crash left them; None when timers are off.

    StoreError when their files can't be read.
    """
    if not config.timer_wheel_enable:
        return None
    metrics = TimerMetrics(config.store_dir / "config" / "timermetrics", now_ms)
    metrics.load()
    state = TimerState(config, store, now_ms)
    state.load()
    return TimerParts(config, store, state, metrics, keeps_counts=keeps_counts)
