"""The revive topic: check points and acknowledgements as messages, to survive a restart.

They have Java's format: a check point has the tag ck and is due a second before its messages are
visible again, an acknowledgement has ack or bAck and is due at that time. Until then they wait as
timer messages, so the entries of the revive topic are always due. A Java broker can continue with
them, and this one with Java's.
"""

from collections.abc import Callable, Sequence

from ...protocol.bodies.pop import AckMsg, BatchAckMsg
from ...protocol.message import properties
from ...protocol.message.tags import tag_hash
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ..scheduled.delivery_policy import DeliveryPolicy
from ..settings.config import BrokerConfig
from .checkpoints import CheckPoint, CheckPointKey
from .counters import ACK, CHECK_POINT, PopMeters

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
CHECK_POINT_AHEAD_MS = 1_000  # PopAckConstants.ackTimeInterval


def revive_topic(cluster: str) -> str:
    """The revive topic of a cluster."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


class PopLog:
    """Writes the revive topic. Each method returns the end of its message in the log.

    StoreError, or a Refusal of the timer's, when a message can't be stored.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        delivery_policy: DeliveryPolicy,
        meters: PopMeters,
        now_ms: Callable[[], int],
    ) -> None:
        self._meters = meters
        self.topic = revive_topic(config.broker_cluster_name)
        self._broker_name = config.broker_name
        self._store = store
        self._delivery_policy = delivery_policy
        self._now_ms = now_ms

    def check_point(self, point: CheckPoint) -> int:
        """Store a check point with its acknowledgements up to now."""
        body = point.to_body(self._broker_name).encode()
        due_ms = point.revive_ms - CHECK_POINT_AHEAD_MS
        name = self._name(point.key, point.start_offset, CHECK_POINT_TAG)
        end = self._put(point.revive_queue_id, body, CHECK_POINT_TAG, name, due_ms)
        self._meters.wrote(point.group, point.topic, CHECK_POINT)
        return end

    def ack(
        self, key: CheckPointKey, offsets: Sequence[int], revive_queue_id: int, revive_ms: int
    ) -> int:
        """Keep acknowledgements for a check point that is in the revive topic already."""
        topic, group, queue_id, start, pop_ms = key
        first = offsets[0] if len(offsets) == 1 else -1
        fields = (first, start, group, topic, queue_id, pop_ms, self._broker_name)
        name = self._name(key, first, ACK_TAG)
        if first >= 0:
            body, tag = AckMsg(*fields).encode(), ACK_TAG
        else:
            body, tag = BatchAckMsg(*fields, list(offsets)).encode(), BATCH_ACK_TAG
        end = self._put(revive_queue_id, body, tag, name, revive_ms)
        self._meters.wrote(group, topic, ACK)
        return end

    def _name(self, key: CheckPointKey, offset: int, tag: str) -> str:
        topic, group, queue_id, _, pop_ms = key
        return f"{topic}@{queue_id}@{offset}@{group}@{pop_ms}@{self._broker_name}@{tag}"

    def _put(self, queue_id: int, body: bytes, tag: str, name: str, due_ms: int) -> int:
        pairs = {
            properties.TIMER_DELIVER_MS: str(due_ms),
            properties.UNIQ_KEY: name,
            properties.TAGS: tag,
        }
        store = self._store
        place = self._delivery_policy.place(properties.encode(pairs).decode(), self.topic, queue_id)
        _, _, end = store.put(
            Message(
                (place.topic, place.queue_id),
                0,
                0,
                self._now_ms(),
                store.host,
                body,
                place.text.encode(),
                tag_hash(tag),
            ),
        )
        return end
