"""A fake broker's queues for tests: messages, offsets and locks in tables in memory.

It handles pulls (parked while there is nothing), offsets and locks like a broker. A test inspects
the requests and changes the tables.
"""

from __future__ import annotations

from collections import defaultdict

from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from aerobee.protocol.command import OK, Command, Response
from aerobee.protocol.headers.offsets import (
    QueryConsumerOffset,
    QueueAddress,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.protocol.headers.pull import PullMessage
from aerobee.protocol.headers.send import ConsumerSendMsgBack

from .fakes import FakeBroker, pulled, record

Place = tuple[str, int]  # topic, queue id


class Shelf:
    """The queues of one fake broker. `committed` has the offsets of its only group.

    `pulls` are the pulls in order of arrival, `backs` the messages sent back, `locks` the owner of
    each locked queue.
    """

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.records: dict[Place, list[bytes]] = defaultdict(list)
        self.committed: dict[Place, int] = {}
        self.pulls: list[PullMessage] = []
        self.backs: list[ConsumerSendMsgBack] = []
        self.locks: dict[Place, str] = {}
        self.least: dict[Place, int] = defaultdict(int)
        self._parked: list[tuple[Command, Connection]] = []
        broker.answers |= {
            codes.PULL_MESSAGE: self.pull,
            codes.LITE_PULL_MESSAGE: self.pull,
            codes.UPDATE_CONSUMER_OFFSET: self._commit,
            codes.QUERY_CONSUMER_OFFSET: self._query,
            codes.GET_MAX_OFFSET: self._max,
            codes.GET_MIN_OFFSET: self._min,
            codes.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            codes.LOCK_BATCH_MQ: self._lock,
            codes.UNLOCK_BATCH_MQ: self._unlock,
            codes.CONSUMER_SEND_MSG_BACK: self._back,
        }

    def put(self, topic: str, queue_id: int, *bodies: bytes, raw_properties: bytes = b"") -> None:
        """Append messages; parked pulls get them."""
        stored = self.records[topic, queue_id]
        for body in bodies:
            stored.append(
                record(len(stored), body, topic, raw_properties=raw_properties, queue_id=queue_id)
            )
        parked, self._parked = self._parked, []
        for command, connection in parked:
            reply = self._answer(command, connection)
            if reply is not None:
                connection.respond(command, reply)

    def pulls_of(self, topic: str, queue_id: int = 0) -> list[int]:
        """The offsets of the pulls of one queue."""
        return [
            pull.offset for pull in self.pulls if (pull.topic, pull.queue_id) == (topic, queue_id)
        ]

    def pull(self, command: Command, connection: Connection) -> Response | None:
        """The response to a pull; None if it is parked."""
        self.pulls.append(command.header(PullMessage))
        return self._answer(command, connection)

    def _answer(self, command: Command, connection: Connection) -> Response | None:
        header = command.header(PullMessage)
        place = (header.topic, header.queue_id)
        stored = self.records[place]
        if header.offset > len(stored) or header.offset < self.least[place]:
            return pulled(next_offset=self.least[place], code=codes.PULL_OFFSET_MOVED)
        if header.offset == len(stored):
            self._parked.append((command, connection))
            return None
        end = min(header.offset + header.max_messages, len(stored))
        return pulled(stored[header.offset : end], end)

    def _commit(self, command: Command, _: Connection) -> Response:
        header = command.header(UpdateConsumerOffset)
        self.committed[header.topic, header.queue_id] = header.commit_offset
        return OK

    def _query(self, command: Command, _: Connection) -> Response:
        header = command.header(QueryConsumerOffset)
        offset = self.committed.get((header.topic, header.queue_id))
        if offset is None:
            return Response(codes.QUERY_NOT_FOUND, remark="new")
        return Response(fields={"offset": str(offset)})

    def _max(self, command: Command, _: Connection) -> Response:
        header = command.header(QueueAddress)
        return Response(fields={"offset": str(len(self.records[header.topic, header.queue_id]))})

    def _min(self, command: Command, _: Connection) -> Response:
        header = command.header(QueueAddress)
        return Response(fields={"offset": str(self.least[header.topic, header.queue_id])})

    def _search(self, command: Command, _: Connection) -> Response:
        return Response(fields={"offset": str(command.header(SearchOffset).timestamp_ms)})

    def _lock(self, command: Command, _: Connection) -> Response:
        body = LockBatchRequestBody.decode(command.body)
        mine = [
            queue
            for queue in body.mq_set
            if self.locks.setdefault((queue.topic, queue.queue_id), body.client_id)
            == body.client_id
        ]
        return Response(body=LockBatchResponseBody(mine).encode())

    def _unlock(self, command: Command, _: Connection) -> Response:
        body = UnlockBatchRequestBody.decode(command.body)
        for queue in body.mq_set:
            if self.locks.get((queue.topic, queue.queue_id)) == body.client_id:
                del self.locks[queue.topic, queue.queue_id]
        return OK

    def _back(self, command: Command, _: Connection) -> Response:
        self.backs.append(command.header(ConsumerSendMsgBack))
        return OK
