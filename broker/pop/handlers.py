"""POP_MESSAGE (200050), PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055).

A pop takes messages and makes them invisible to the rest of its group for a while. A pop that finds
nothing waits in `PopPolls`, which runs the same read again when a message comes. A peek only
reads, and never waits.
"""

import logging
from collections.abc import Callable, Iterator

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.topic import TopicConfig
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.pop import (
    Notification,
    NotificationResponse,
    PeekMessage,
    PollingInfo,
    PollingInfoResponse,
    PopMessage,
    PopMessageResponse,
    popped_response,
)
from ...store.base.errors import StoreError
from ..access import gates, needs
from ..filters.filters import Filters
from ..groups.permissions import Permissions
from ..pull.long_polls import LongPolls, QueueKey
from ..runtime.spans import Spans
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .checkpoints import MESSAGES_MAX
from .long_polls import PopPolls
from .peek import Peeks
from .take import Popped, Pops

ALL_QUEUES = -1  # any number below means the same
POLL_MS_MAX = 3_600_000  # how long one request may wait
INVISIBLE_MS_MAX = 3 * 86_400_000  # timerMaxDelaySec of RocketMQ
LATE_MS_MAX = 500  # a request is refused this long after its wait: the client has given it up

log = logging.getLogger(__name__)

# Refusals carry these headers, too, because clients read the header before the code.
_NO_POP = PopMessageResponse().to_fields()
_NONE_OF = {
    PopMessage: _NO_POP,
    PeekMessage: _NO_POP,
    Notification: NotificationResponse().to_fields(),
    PollingInfo: PollingInfoResponse().to_fields(),
}
_NOTHING = "NO_MESSAGE_IN_QUEUE"

PopRequest = PopMessage | PeekMessage | Notification | PollingInfo


class PopHandlers:
    """Handles the four requests. `mark((topic, queue id))` has the queue's parked requests run
    again."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        permissions: Permissions,
        filters: Filters,
        pops: Pops,
        peeks: Peeks,
        long_polls: LongPolls,
        mark: Callable[[QueueKey], None],
        now_ms: Callable[[], int],
        client_ms: Callable[[], int],
        spans: Spans | None,
    ) -> None:
        self.config = config
        self.topics = topics
        self.permissions = permissions
        self.filters = filters
        self.pops = pops
        self.peeks = peeks
        self.mark = mark
        self.now_ms = now_ms
        self.spans = spans
        self.client_ms = client_ms  # the clock that `born_ms` of a request was read from
        limits = (config.pop_polling_size, config.max_pop_polling_size)
        self.polls = PopPolls(long_polls, self._pop_again, *limits, now_ms)
        self.notifications = PopPolls(long_polls, self._notify_again, *limits, now_ms, once=True)

    def rows(self) -> list[Row]:
        return [
            Row(codes.POP_MESSAGE, PopMessage, self.on_pop, needs.POP, gates.POP, bulk=True),
            Row(codes.PEEK_MESSAGE, PeekMessage, self.on_peek, needs.POP, bulk=True),
            Row(codes.NOTIFICATION, Notification, self.on_notification, needs.POP, gates.POP),
            Row(
                codes.POLLING_INFO, PollingInfo, self.on_polling_info, needs.CONSUMERS_OF_TOPIC_GET
            ),
        ]

    def on_pop(
        self, header: PopMessage, command: Command, connection: Connection
    ) -> Response | bytes | None:
        if connection.budget.is_full:
            raise connection.budget.busy()
        now_ms = self.now_ms()
        age_ms = self._age_ms(header.born_ms)
        header.queue_id = max(ALL_QUEUES, header.queue_id)
        if age_ms - header.poll_ms > LATE_MS_MAX:
            raise self._refused(
                codes.POLLING_TIMEOUT,
                f"the broker[{self.config.broker_ip1}] pop message is timeout too much: it was "
                f"sent {age_ms} ms ago to wait {header.poll_ms} ms; compare the "
                "clocks of client and broker",
            )
        found = self._pop(header, now_ms)
        if found.count:
            return self._popped(header, command, found, connection)
        place = (header.topic, header.group, header.queue_id)
        end_ms = now_ms - max(age_ms, 0) + min(header.poll_ms, POLL_MS_MAX)
        code = codes.POLLING_TIMEOUT
        if header.poll_ms > 0 and end_ms > now_ms:
            queues = self._queues(header.topic, header.group, header.queue_id)
            if self.polls.park(place, queues, end_ms, header, command, connection):
                self._mark_again(found)
                return None
            code = codes.POLLING_FULL
        return self._nothing(header, found, code)

    def on_peek(self, header: PeekMessage, command: Command, connection: Connection) -> Response:
        if connection.budget.is_full:
            raise connection.budget.busy()
        header.queue_id = max(ALL_QUEUES, header.queue_id)
        topic = self._check(header)
        if header.max_messages < 0:
            raise self._refused(
                codes.SYSTEM_ERROR,
                f"maxMsgNums is {header.max_messages}, it must be 0 or more; correct it",
            )
        try:
            found = self.peeks.peek(header, topic)
        except StoreError as wrong:
            raise self._refused(codes.SYSTEM_ERROR, str(wrong)) from None
        fields = PopMessageResponse(rest=found.rest).to_fields()
        if not found.count:
            return Response(codes.PULL_NOT_FOUND, fields, _NOTHING)
        return Response(codes.SUCCESS, fields, "FOUND", found.records)

    def on_notification(
        self, header: Notification, command: Command, connection: Connection
    ) -> Response | None:
        header.queue_id = max(ALL_QUEUES, header.queue_id)
        self._check(header)
        if self._has_message(header):
            return _notified(has_message=True)
        now_ms = self.now_ms()
        age_ms = max(self._age_ms(header.born_ms), 0)
        end_ms = now_ms - age_ms + min(header.poll_ms, POLL_MS_MAX)
        if header.poll_ms <= 0 or end_ms <= now_ms:
            return _notified()
        place = (header.topic, header.group, header.queue_id)
        queues = self._queues(header.topic, header.group, header.queue_id)
        if self.notifications.park(place, queues, end_ms, header, command, connection):
            return None
        return _notified(polling_full=True)

    def on_polling_info(
        self, header: PollingInfo, command: Command, connection: Connection
    ) -> Response:
        header.queue_id = max(ALL_QUEUES, header.queue_id)
        self._check(header)
        count = self.polls.waiting(header.topic, header.group, header.queue_id)
        return Response(codes.SUCCESS, PollingInfoResponse(count).to_fields())

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Run the parked requests of a queue again: it was popped in order and is free now."""
        for place_id in (ALL_QUEUES, queue_id):
            self.polls.wake((topic, group, place_id))
            self.notifications.wake((topic, group, place_id))

    def sweep(self, now_ms: int) -> None:
        """Respond to the parked requests whose time is up."""
        self.polls.sweep(now_ms)
        self.notifications.sweep(now_ms)

    def tidy(self) -> None:
        """Forget keys without a waiting request."""
        self.polls.tidy()
        self.notifications.tidy()

    # --- inside ---------------------------------------------------------------------------------

    def _age_ms(self, born_ms: int) -> int:
        """The request's age by the client's own clock; below 0 if that clock is ahead."""
        return self.client_ms() - born_ms if born_ms else 0

    def _pop(self, header: PopMessage, now_ms: int) -> Popped:
        """Check a pop and take its messages. Refusal when a check or the store fails."""
        topic = self._check(header)
        if not self.config.timer_wheel_enable:
            raise self._refused(
                codes.SYSTEM_ERROR,
                f"the broker[{self.config.broker_ip1}] pop message is forbidden because "
                "timerWheelEnable is false; switch it on",
            )
        if not 0 <= header.max_messages <= MESSAGES_MAX:
            raise self._refused(
                codes.INVALID_PARAMETER,
                f"the broker[{self.config.broker_ip1}] pop message's num is "
                f"{header.max_messages}, it must be 0 to {MESSAGES_MAX}",
            )
        if not 0 <= header.invisible_ms <= INVISIBLE_MS_MAX:
            raise self._refused(
                codes.INVALID_PARAMETER,
                f"the invisible time is {header.invisible_ms} ms, it must be 0 to "
                f"{INVISIBLE_MS_MAX}",
            )
        wanted = None
        if header.expression:
            try:
                kind = header.expression_type
                wanted = self.filters.stated(header.topic, header.expression, kind, always=True)
            except Refusal as wrong:
                raise self._refused(
                    codes.SUBSCRIPTION_PARSE_FAILED,
                    f"parse the consumer's subscription failed: {wrong.remark}",
                ) from None
        try:
            return self.pops.pop(header, topic, wanted, now_ms)
        except (StoreError, OverflowError) as wrong:
            raise self._refused(codes.SYSTEM_ERROR, str(wrong)) from None

    def _check(self, header: PopRequest) -> TopicConfig:
        """The checks that all four requests have; returns the topic's settings. Refusal."""
        try:
            return self._allowed(header)
        except Refusal as refusal:
            refusal.fields = _NONE_OF[type(header)]
            raise

    def _allowed(self, header: PopRequest) -> TopicConfig:
        self.permissions.require_readable_broker()
        topic = self.permissions.require_readable_topic(header.topic)
        if header.queue_id >= topic.read_queue_nums:
            raise self._refused(
                codes.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]; -1 is for all queues",
            )
        self.permissions.require_reader(header.group)
        return topic

    def _queues(self, topic: str, group: str, queue_id: int) -> Iterator[QueueKey]:
        """The queues that a parked request watches: a generator, not run if it can't be parked."""
        config = self.topics.get(topic)
        count = config.read_queue_nums if config is not None else 0
        for number in range(count) if queue_id < 0 else [queue_id]:
            yield topic, number
        for name in self.pops.retry_topics(topic, group):
            yield name, 0

    def _pop_again(
        self, header: PopMessage, command: Command, connection: Connection, is_last: bool
    ) -> Response | bytes | None:
        found = self._pop(header, self.now_ms())
        if found.count:
            return self._popped(header, command, found, connection)
        if is_last:
            return self._nothing(header, found, codes.POLLING_TIMEOUT)
        self._mark_again(found)
        return None

    def _notify_again(
        self, header: Notification, command: Command, connection: Connection, is_last: bool
    ) -> Response | None:
        self._check(header)
        found = self._has_message(header)
        return _notified(has_message=found) if found or is_last else None

    def _has_message(self, header: Notification) -> bool:
        return self.pops.has_message(
            header.topic,
            header.group,
            header.queue_id,
            order=header.order,
            attempt_id=header.attempt_id,
        )

    def _mark_again(self, found: Popped) -> None:
        for key in found.again:
            self.mark(key)

    def _popped(
        self, header: PopMessage, command: Command, found: Popped, connection: Connection
    ) -> Response | bytes:
        if self.spans is not None:
            self.spans.delivered(found.records, header.group)
        reply = popped_response(command, _answer(header, found), found.records, found.size)
        if type(reply) is bytes:
            connection.transport.add_unsent(found.size)
        return reply

    def _nothing(self, header: PopMessage, found: Popped, code: int) -> Response:
        return Response(code, _answer(header, found).to_fields(), _NOTHING)

    @staticmethod
    def _refused(code: int, text: str) -> Refusal:
        return Refusal(code, text, _NO_POP)


def _answer(header: PopMessage, found: Popped) -> PopMessageResponse:
    return PopMessageResponse(
        found.pop_ms,
        header.invisible_ms,
        found.revive_queue_id,
        found.rest,
        ";".join(found.starts),
        ";".join(found.offsets),
        ";".join(found.counts) if header.order else None,
    )


def _notified(*, has_message: bool = False, polling_full: bool = False) -> Response:
    return Response(codes.SUCCESS, NotificationResponse(has_message, polling_full).to_fields())
