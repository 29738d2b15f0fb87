"""Groups that the log waits for (`retainUntilConsumedBy`): which messages each of them holds.

A group holds a topic in which it has an offset: what it has not read of it, of all its queues here.
Topics of the system, of retries and of dead letters are not held.
"""

from dataclasses import dataclass
from functools import lru_cache

from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ...store.base.retention import Hold
from ...store.engine.store import MessageStore
from ..settings.config import BrokerConfig
from .offsets import Offsets


@dataclass(slots=True, eq=False)
class WaitingGroups:
    """Answers which group holds a queue."""

    config: BrokerConfig
    store: MessageStore
    offsets: Offsets

    def apply(self) -> None:
        """Have the store wait for the groups of the setting, as it is now."""
        self.store.wait_for(self._hold_of if self._names() else None)

    def without_offsets(self) -> list[str]:
        """The groups of the setting that hold nothing, since they have no offset at all."""
        return [name for name in self._names() if not self.offsets.topics_of(name)]

    def _names(self) -> tuple[str, ...]:
        return _split(self.config.retain_until_consumed_by)

    def _hold_of(self, topic: str, queue_id: int) -> Hold | None:
        if is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return None
        holds = [
            Hold(name, self.offsets.get(topic, name, queue_id))
            for name in self._names()
            if self.offsets.has(topic, name)
        ]
        return min(holds, key=lambda hold: hold.offset, default=None)


@lru_cache(1)
def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, text.split(";"))))
