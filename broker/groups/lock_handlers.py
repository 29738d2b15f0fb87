"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): consumers that read queues in order."""

from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.body import MessageQueue, body_of
from ...protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.names import STORED_TOPIC_CHARS_MAX, check_client_id
from ..access import gates, needs
from .queue_locks import Queue, QueueLocks


@dataclass(slots=True, eq=False)
class LockHandlers:
    """Hands out `QueueLocks`."""

    locks: QueueLocks
    now_ms: Callable[[], int]

    def rows(self) -> list[Row]:
        return [
            Row(codes.LOCK_BATCH_MQ, None, self.on_lock, needs.LOCK, gates.LOCK),
            Row(codes.UNLOCK_BATCH_MQ, None, self.on_unlock, needs.LOCK, gates.UNLOCK),
        ]

    def on_lock(self, header: None, command: Command, connection: Connection) -> Response:
        wanted = body_of(command, LockBatchRequestBody)
        queues = _queues_of(wanted)
        held = set(self.locks.lock(wanted.consumer_group, wanted.client_id, queues, self.now_ms()))
        asked = {_key(queue): queue for queue in wanted.mq_set}
        answer = [queue for key, queue in asked.items() if key in held]
        return Response(codes.SUCCESS, body=LockBatchResponseBody(answer).encode())

    def on_unlock(self, header: None, command: Command, connection: Connection) -> Response:
        wanted = body_of(command, UnlockBatchRequestBody)
        self.locks.unlock(wanted.consumer_group, wanted.client_id, _queues_of(wanted))
        return OK


def _queues_of(wanted: LockBatchRequestBody | UnlockBatchRequestBody) -> list[Queue]:
    if not wanted.consumer_group or not wanted.client_id:
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"a lock is of a group and a client, but consumerGroup is {wanted.consumer_group!r} "
            f"and clientId is {wanted.client_id!r}; send both",
        )
    check_client_id(wanted.client_id)
    names = {wanted.consumer_group}
    for queue in wanted.mq_set:
        names |= {queue.topic, queue.broker_name}
    longest = max(map(len, names))
    if longest > STORED_TOPIC_CHARS_MAX:
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"a name of {longest} characters can't be locked, the limit for a group, a topic and a "
            f"broker is {STORED_TOPIC_CHARS_MAX}; lock queues that are there",
        )
    return [_key(queue) for queue in wanted.mq_set]


def _key(queue: MessageQueue) -> Queue:
    return queue.topic, queue.broker_name, queue.queue_id
