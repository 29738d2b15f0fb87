"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): the messages of a queue from an offset on.

A pull that finds nothing and may wait is parked in `LongPolls`. `LongPolls` later calls `rerun`.
New and parked pulls are served by the same function, so a woken pull gets what a new one would get.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.memory_budget import WAITING_SHARE
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.subscription import TAG
from ...protocol.bodies.topic import TopicConfig
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.filters.sql92 import Predicate
from ...protocol.headers.pull import (
    BULK,
    CLASS_FILTER,
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullMessage,
    PullMessageResponse,
)
from ...protocol.names import is_system_group
from ...store.base import status
from ...store.engine.store import Found, MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES
from ..access import needs
from ..filters.filters import Filters
from ..filters.matching import Wanted, scan_matching, tags_of
from ..groups.clients import Clients
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..groups.permissions import (
    BY_BROADCAST,
    BY_BROKER,
    BY_SUBSCRIPTION,
    Permissions,
    forbidden,
)
from ..runtime.parking import ParkedRequest
from ..runtime.spans import Spans
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from .cold_data import ColdData
from .long_polls import PARKED_MAX, PARKED_PER_QUEUE_MAX, LongPolls
from .role import PullRole

SHORT_CHARS = 256  # up to here an expression's memory is not counted while its pull waits
SUSPEND_MS_MAX = 3_600_000  # how long one pull may wait
BULK_BYTES_MAX = 1 << 20  # of a bulk response; a single message may be larger
BULK_MESSAGES_MAX = 8_192  # of a bulk response
OFFSET_RESET = "OFFSET_RESET"  # the remark of a response with the offset of a reset

# Groups that may pull without being members, whatever rejectPullConsumerEnable says
_TOOLS = frozenset(
    {
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
    }
)


class LogicalPulls(Protocol):
    """Serves the pulls of static topics (see `static_handlers`)."""

    def has(self, header: PullMessage) -> bool:
        """True if the pull is of a logical queue."""

    def on_pull(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> Response | bytes | Coroutine[Any, Any, Response] | None:
        """Serve it."""

    def recheck(self, header: PullMessage) -> None:
        """Check a pull that waited; Refusal once its logical queue is led elsewhere."""


@dataclass(slots=True, eq=False)
class PullHandlers:
    """Handles pulls. `long_polls` is created here, because it runs `rerun` for parked pulls.

    `role` decides what differs between a master and a slave. `change_refusal()` says why offsets
    that come with pulls are not kept; None for a broker that keeps them all. `logical` is set once
    there is a static topic.
    """

    config: BrokerConfig
    role: PullRole
    store: MessageStore
    permissions: Permissions
    groups: Groups
    offsets: Offsets
    clients: Clients
    filters: Filters
    stats: Stats
    now_ms: Callable[[], int]
    spans: Spans | None
    change_refusal: Callable[[], str | None] | None
    logical: LogicalPulls | None = field(init=False)
    long_polls: LongPolls = field(init=False)
    cold: ColdData = field(init=False)

    def __post_init__(self) -> None:
        self.logical = None
        self.long_polls = LongPolls(self.rerun, self.now_ms)
        self.cold = ColdData(self.config, self.store, self.clients, self.now_ms, self._pull)

    def rows(self) -> list[Row]:
        return [
            Row(codes.PULL_MESSAGE, PullMessage, self.on_pull, needs.PULL, hot=True, bulk=True),
            Row(
                codes.LITE_PULL_MESSAGE,
                PullMessage,
                self.on_pull,
                needs.LITE_PULL,
                hot=True,
                bulk=True,
            ),
        ]

    def on_pull(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> Response | bytes | Coroutine[Any, Any, Response] | None:
        refusal = self.role.refusal
        if refusal is not None:
            raise Refusal(codes.SYSTEM_BUSY, refusal)
        if self.logical is not None and self.logical.has(header):
            return self.logical.on_pull(header, command, connection)
        is_controlled = self.config.cold_data_flow_control_enable
        if is_controlled and self.cold.delays(header, command, connection):
            return None
        return self._pull(header, command, connection)

    @property
    def takes_progress(self) -> bool:
        """True if an offset that comes with a pull is committed at this moment."""
        return self.change_refusal is None or self.change_refusal() is None

    def rerun(
        self, header: PullMessage, command: Command, connection: Connection, is_last: bool
    ) -> Response | bytes | None:
        """Serve a parked pull again; None when it stays parked, never if `is_last`. Refusal when a
        check fails."""
        if self.logical is not None:
            self.logical.recheck(header)
        return self._pull(header, command, connection, True, is_last)

    def check(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> tuple[Wanted, TopicConfig, SubscriptionGroupConfig]:
        """Check a pull; returns the group's filter for the topic, the topic and the group.

        Refusal when a check fails.
        """
        config = self.config
        if command.code == codes.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise forbidden(
                BY_BROKER,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden; its "
                "litePullMessageEnable is false",
            )
        topic, group = self.permissions.require_readable(header.topic, header.group)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] refresh the route",
            )
        if header.sys_flag & CLASS_FILTER:
            raise self._no_class_filter(header)
        wanted: Wanted
        if header.sys_flag & SUBSCRIPTION:
            wanted = self.filters.stated(header.topic, header.subscription, header.expression_type)
        else:
            wanted = self._registered(header, group.consume_broadcast_enable)
        if config.reject_pull_consumer_enable:
            self._check_member(header, connection)
        return wanted, topic, group

    # --- inside ---------------------------------------------------------------------------------

    def _pull(
        self,
        header: PullMessage,
        command: Command,
        connection: Connection,
        is_parked: bool = False,
        is_last: bool = False,
    ) -> Response | bytes | None:
        """Serve a new pull or a parked one; None when it is parked now or stays parked.

        `is_last`: it may wait no more. Refusal when a check fails, or when a new pull is one too
        many.
        """
        if not is_parked and connection.budget.is_full:
            raise connection.budget.busy()
        wanted, topic, group = self.check(header, command, connection)
        if self.offsets.resets:
            moved = self._reset(header, topic, group)
            if moved is not None:
                return moved
        found = self._read(header, wanted)
        if not is_parked:
            if self.config.cold_data_flow_control_enable and found.status == status.FOUND:
                tags = wanted if isinstance(wanted, frozenset) else None
                self.cold.count(header, found.next_offset, tags)
            commit_offset = header.commit_offset
            if header.sys_flag & COMMIT_OFFSET and commit_offset >= 0 and self.takes_progress:
                self.offsets.commit(header.topic, header.group, header.queue_id, commit_offset)
        if found.status == status.FOUND:
            return self._found(header, command, found, topic, group, connection)
        if not is_parked:
            if header.sys_flag & SUSPEND and self.role.may_wait(header, found):
                self._park(header, command, connection)
                return None
        elif not is_last and not self.role.ends_long_polls:
            if found.status == status.NO_MATCHED_MESSAGE and found.next_offset >= found.max_offset:
                header.offset = found.next_offset  # messages that didn't match are not read twice
                return None
            if self.role.may_wait(header, found):
                return None
        return self._missed(header, found, topic, group)

    def _registered(self, header: PullMessage, broadcast_allowed: bool) -> Wanted:
        """The subscription from the group's heartbeats."""
        group = self.clients.consumer_group(header.group)
        if group is None:
            raise Refusal(
                codes.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist; send a heartbeat",
            )
        if not broadcast_allowed and group.message_model == "BROADCASTING":
            raise forbidden(
                BY_BROADCAST,
                f"the consumer group[{header.group}] can not consume by broadcast way: its "
                "consumeBroadcastEnable is false; switch it on, or consume by clustering",
            )
        if self.groups.forbids(header.group, header.topic):
            raise forbidden(
                BY_SUBSCRIPTION,
                f"the consumer group[{header.group}] is forbidden for topic[{header.topic}]; allow "
                "it by request UPDATE_AND_GET_GROUP_FORBIDDEN",
            )
        found = group.subscriptions.get(header.topic)
        if found is None:
            raise Refusal(
                codes.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.group} has not subscribed "
                f"to {header.topic}; subscribe, and send a heartbeat",
            )
        if found.sub_version < header.sub_version:
            raise Refusal(
                codes.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {found.sub_version} is known, "
                f"{header.sub_version} was named; send a heartbeat",
            )
        if found.class_filter_mode:
            raise self._no_class_filter(header)
        if found.expression_type == TAG:
            return tags_of(found)
        return self.filters.registered(found, header.group, header.sub_version)

    def _check_member(self, header: PullMessage, connection: Connection) -> None:
        """Refuse a pull from a connection outside its group.

        Groups of push consumers, of tools and of the system are exempt.
        """
        group = self.clients.consumer_group(header.group)
        if group is not None and (
            group.consume_type != "CONSUME_ACTIVELY" or group.is_member(connection)
        ):
            return
        if header.group not in _TOOLS and not is_system_group(header.group):
            raise Refusal(
                codes.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist, or the pull consumer is rejected by server: "
                f"send a heartbeat for group {header.group} on this connection, or set "
                "rejectPullConsumerEnable=false",
            )

    def _read(self, header: PullMessage, wanted: Wanted) -> Found:
        if wanted is not None and not isinstance(wanted, frozenset):
            return self._read_matching(header, wanted)
        if header.sys_flag & BULK:
            messages_max = min(header.max_messages, BULK_MESSAGES_MAX)
            return self.store.get_many(
                header.topic, header.queue_id, header.offset, messages_max, BULK_BYTES_MAX, wanted
            )
        return self.store.get(
            header.topic,
            header.queue_id,
            header.offset,
            header.max_messages,
            self.config.max_transfer_bytes_on_message_in_memory,
            wanted,
        )

    def _read_matching(self, header: PullMessage, matches: Predicate) -> Found:
        """The messages that match an expression, within the limits of one pull."""
        config, store = self.config, self.store
        if store.in_memory(header.topic, header.queue_id, header.offset):
            messages_max = config.max_transfer_count_on_message_in_memory
            bytes_max = config.max_transfer_bytes_on_message_in_memory
        else:
            messages_max = config.max_transfer_count_on_message_in_disk
            bytes_max = config.max_transfer_bytes_on_message_in_disk
        messages_max = max(1, min(header.max_messages, messages_max))
        entries_max = max(config.max_filter_message_size // ENTRY_BYTES, messages_max)
        return scan_matching(
            store,
            header.topic,
            header.queue_id,
            header.offset,
            messages_max,
            bytes_max,
            matches,
            entries_max,
        )

    def _reset(
        self, header: PullMessage, topic: TopicConfig, group: SubscriptionGroupConfig
    ) -> Response | None:
        """The response that moves the client to the offset of a reset; None without a reset."""
        offset = self.offsets.take_reset(header.topic, header.group, header.queue_id)
        if offset is None:
            return None
        least = self.store.min_offset(header.topic, header.queue_id)
        most = self.store.max_offset(header.topic, header.queue_id)
        answer = PullMessageResponse(
            0,
            offset,
            max(0, least),
            max(0, most),
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )
        return header.missed(codes.PULL_OFFSET_MOVED, answer, OFFSET_RESET)

    def _park(self, header: PullMessage, command: Command, connection: Connection) -> None:
        """Keep a pull until a message arrives or its time is up. Refusal at a limit."""
        if self.config.long_polling_enable:
            asked_ms = max(0, min(header.suspend_ms, SUSPEND_MS_MAX))
        else:
            asked_ms = self.config.short_polling_time_mills
        now_ms = self.now_ms()
        deadline_ms = now_ms + self.role.wait_ms(asked_ms)
        pull = ParkedRequest(header, command, connection, now_ms, deadline_ms)
        if not _is_short(header, command):
            pull.bytes = command.weight()
        if not self.long_polls.park((header.topic, header.queue_id), pull):
            raise self._too_many(header, pull, connection)

    def _found(
        self,
        header: PullMessage,
        command: Command,
        found: Found,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        connection: Connection,
    ) -> Response | bytes:
        """The response with the messages that were found."""
        self.offsets.pulled(header.topic, header.group, header.queue_id, found.next_offset)
        suggested = 0
        if self.config.slave_read_enable:
            suggested = self._suggested_broker(header, found, group)
        gets = self.stats.gets(header.topic, header.group)
        gets.messages += found.count
        gets.bytes += found.size
        gets.calls += 1
        total = gets.total
        total.messages += found.count
        total.bytes += found.size
        total.calls += 1
        if self.spans is not None:
            self.spans.delivered(found.records, header.group)
        reply = header.found(command, found, topic.topic_sys_flag, group.group_sys_flag, suggested)
        if type(reply) is bytes:
            connection.transport.add_unsent(found.size)
        return reply

    def _missed(
        self,
        header: PullMessage,
        missed: Found,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> Response:
        """The response without messages."""
        missed.next_offset = self.role.next_offset(header, missed)
        self.offsets.pulled(header.topic, header.group, header.queue_id, missed.next_offset)
        suggested = 0
        if self.config.slave_read_enable:
            suggested = self._suggested_broker(header, missed, group)
        self.stats.misses.messages += 1
        answer = PullMessageResponse.of(
            missed, topic.topic_sys_flag, group.group_sys_flag, suggested
        )
        name = status.NAMES[missed.status]
        if missed.status == status.NO_MATCHED_LOGIC_QUEUE:
            # The topic has been checked: RocketMQ creates the queue, and finds it empty.
            name = status.NAMES[status.NO_MESSAGE_IN_QUEUE]
        return header.missed(self.role.code(header, missed), answer, name)

    def _suggested_broker(
        self, header: PullMessage, found: Found, group: SubscriptionGroupConfig
    ) -> int:
        """The id of the broker to ask next: a slave if the messages have left the memory here."""
        scanned = found.next_offset > header.offset
        last = found.next_offset - 1
        is_slow = scanned and not self.store.in_memory(header.topic, header.queue_id, last)
        return self.role.suggested_broker(group, found, is_slow=is_slow)

    def _too_many(
        self, header: PullMessage, pull: ParkedRequest, connection: Connection
    ) -> Refusal:
        """The refusal of a pull that can't be parked.

        After an empty response the client would pull again at once; after a refusal it waits.
        """
        if pull.bytes:
            budget = connection.budget
            return Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]this pull has {pull.bytes} bytes, long ones have {budget.waiting} "
                f"bytes that wait for messages here, the limit is one part in {WAITING_SHARE} of "
                f"{budget.bytes_max} (clientMemoryBytesMax); send a shorter expression, or "
                "subscribe by heartbeats",
            )
        return Refusal(
            codes.SYSTEM_BUSY,
            f"[OVERLOAD]{self.long_polls.count} pulls wait for messages here, and those of queue "
            f"{header.queue_id} of topic {header.topic} or all together reach the limit of "
            f"{PARKED_PER_QUEUE_MAX} or {PARKED_MAX}; try again later, or stop some consumers",
        )

    @staticmethod
    def _no_class_filter(header: PullMessage) -> Refusal:
        return Refusal(
            codes.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by class: group "
            f"{header.group} must subscribe to {header.topic} by tags or SQL92",
        )


def _is_short(header: PullMessage, command: Command) -> bool:
    """True if a pull is as small as clients usually send it: its memory need not be counted."""
    ext: Any = command.ext
    return (
        type(ext) is PullMessage
        and command.body is None
        and command.remark is None
        and len(header.subscription or "") <= SHORT_CHARS
        and header.proxy_forward_client_id is None
        and len(str(command.language)) <= SHORT_CHARS
    )
