"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): messages go out.

A pull is checked, looked up, answered; one that finds nothing and may wait is parked in `Holds`,
which later calls `rerun`: the same look-up, so that a woken pull and a fresh one can't differ.
"""

from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.subscription import SubscriptionData, subscription
from ...protocol.command import Command, Reply
from ...protocol.errors import Refusal
from ...protocol.headers.pull import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullMessage,
    PullMessageAnswer,
    found_answer,
)
from ...store import status
from ...store.store import Found, MessageStore
from ..clients import Clients
from ..config import BrokerConfig
from ..groups import Groups
from ..holds import Hold, Holds
from ..offsets import Offsets
from ..stats import Stats
from ..topics import Topics

PERM_READ = 4
MESSAGES_MAX = 32  # a pull; maxTransferCountOnMessageInMemory
BYTES_MAX = 256 << 10  # a pull; maxTransferBytesOnMessageInMemory
EXPRESSIONS_MAX = 10_000  # parsed subscription texts kept

# forbiddenType of an answer: what exactly was not allowed
FORBIDDEN_BROKER, FORBIDDEN_GROUP, FORBIDDEN_TOPIC = 1, 2, 3
FORBIDDEN_BROADCAST, FORBIDDEN_SUBSCRIPTION = 4, 5

_CODES = {
    status.FOUND: codes.SUCCESS,
    status.MESSAGE_WAS_REMOVING: codes.PULL_RETRY_IMMEDIATELY,
    status.NO_MATCHED_MESSAGE: codes.PULL_RETRY_IMMEDIATELY,
    status.OFFSET_FOUND_NULL: codes.PULL_NOT_FOUND,
    status.OFFSET_OVERFLOW_ONE: codes.PULL_NOT_FOUND,
    status.OFFSET_OVERFLOW_BADLY: codes.PULL_OFFSET_MOVED,
    status.OFFSET_TOO_SMALL: codes.PULL_OFFSET_MOVED,
}


class PullHandlers:
    """Hands messages out. `holds` is made here, because it runs our look-up again."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        clients: Clients,
        stats: Stats,
        now_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.store = store
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.clients = clients
        self.stats = stats
        self.now_ms = now_ms
        self.holds = Holds(self.rerun)
        self._parsed: dict[tuple[str, str, str], SubscriptionData] = {}

    def rows(self) -> list[Row]:
        return [
            Row(codes.PULL_MESSAGE, PullMessage, self.on_pull, "SUB", hot=True),
            Row(codes.LITE_PULL_MESSAGE, PullMessage, self.on_pull, "SUB", hot=True),
        ]

    def on_pull(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> Reply | bytes | None:
        tag_codes = self._check(header)
        found = self._look(header, tag_codes)
        flags = header.sys_flag
        if flags & COMMIT_OFFSET and header.commit_offset >= 0:
            self.offsets.commit(header.topic, header.group, header.queue_id, header.commit_offset)
        if flags & SUSPEND and found.status != status.FOUND and self._may_wait(header, found):
            deadline_ms = self.now_ms() + self._suspend_ms(header)
            hold = Hold(header, command, connection, tag_codes, deadline_ms)
            if self.holds.park((header.topic, header.queue_id), hold):
                return None
        return self._answer(header, command, found)

    def rerun(
        self, header: PullMessage, command: Command, connection: Connection, final: bool
    ) -> Reply | bytes | None:
        """A parked pull again; None when there is still nothing and it is not `final`."""
        try:
            tag_codes = self._check(header)
        except Refusal as refusal:
            return Reply(refusal.code, refusal.fields, refusal.remark)
        found = self._look(header, tag_codes)
        if not final:
            if found.status == status.NO_MATCHED_MESSAGE and found.next_offset >= found.max_offset:
                header.offset = found.next_offset  # what didn't match is not looked at twice
                return None
            if found.status != status.FOUND and self._may_wait(header, found):
                return None
        return self._answer(header, command, found)

    # --- inside ---------------------------------------------------------------------------------

    def _check(self, header: PullMessage) -> frozenset[int] | None:
        """All that can forbid a pull; gives the wanted tag codes, None for all messages."""
        group = self.groups.find(header.group)
        if group is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.group}] does not exist; create it or switch on "
                "autoCreateSubscriptionGroup",
            )
        if not group.consume_enable:
            raise self._forbidden(
                FORBIDDEN_GROUP, f"subscription group no permission, {header.group}"
            )
        topic = self.topics.get(header.topic)
        if topic is None:
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not topic.perm & PERM_READ or not self.config.broker_permission & PERM_READ:
            raise self._forbidden(
                FORBIDDEN_TOPIC, f"the topic[{header.topic}] pulling message is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] refresh the route",
            )
        if header.sys_flag & SUBSCRIPTION:
            wanted = self._parse(header)
        else:
            wanted = self._registered(header, group.consume_broadcast_enable)
        if wanted.expression_type not in (None, "", "TAG"):
            raise Refusal(
                codes.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{wanted.expression_type}",
            )
        return self._tag_codes(wanted)

    def _parse(self, header: PullMessage) -> SubscriptionData:
        kind = header.expression_type or "TAG"
        key = (header.topic, header.subscription or "*", kind)
        found = self._parsed.get(key)
        if found is None:
            if len(self._parsed) >= EXPRESSIONS_MAX:
                self._parsed.clear()
            try:
                found = subscription(header.topic, key[1], kind)
            except ValueError as wrong:
                raise Refusal(
                    codes.SUBSCRIPTION_PARSE_FAILED,
                    f"parse the consumer's subscription failed: {wrong}",
                ) from None
            self._parsed[key] = found
        return found

    def _registered(self, header: PullMessage, broadcast_allowed: bool) -> SubscriptionData:
        """The subscription that the group's heartbeats have told."""
        group = self.clients.consumer_group(header.group)
        if group is None:
            raise Refusal(
                codes.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist; send a heartbeat",
            )
        if not broadcast_allowed and group.message_model == "BROADCASTING":
            raise self._forbidden(
                FORBIDDEN_BROADCAST,
                f"the consumer group[{header.group}] can not consume by broadcast way",
            )
        if self.groups.forbids(header.group, header.topic):
            raise self._forbidden(
                FORBIDDEN_SUBSCRIPTION,
                f"the consumer group[{header.group}] is forbidden for topic[{header.topic}]",
            )
        found = group.subscriptions.get(header.topic)
        if found is None:
            raise Refusal(
                codes.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.group} has not subscribed "
                f"to {header.topic}",
            )
        if found.sub_version < header.sub_version:
            raise Refusal(
                codes.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {found.sub_version} is known, "
                f"{header.sub_version} was named; send a heartbeat",
            )
        return found

    def _tag_codes(self, wanted: SubscriptionData) -> frozenset[int] | None:
        if wanted.sub_string == "*" or not wanted.code_set:
            return None
        return frozenset(wanted.code_set)

    def _look(self, header: PullMessage, tag_codes: frozenset[int] | None) -> Found:
        return self.store.get(
            header.topic,
            header.queue_id,
            header.offset,
            min(header.max_messages, MESSAGES_MAX),
            BYTES_MAX,
            tag_codes,
        )

    def _may_wait(self, header: PullMessage, found: Found) -> bool:
        return self._code(header, found) == codes.PULL_NOT_FOUND

    def _suspend_ms(self, header: PullMessage) -> int:
        if not self.config.long_polling_enable:
            return self.config.short_polling_time_mills
        return max(0, header.suspend_ms)

    @staticmethod
    def _code(header: PullMessage, found: Found) -> int:
        known = _CODES.get(found.status)
        if known is not None:
            return known
        # No such queue yet, or one without a message: right only for a reader at the start.
        return codes.PULL_NOT_FOUND if header.offset == 0 else codes.PULL_OFFSET_MOVED

    def _answer(self, header: PullMessage, command: Command, found: Found) -> Reply | bytes:
        self.offsets.pulled(header.topic, header.group, header.queue_id, found.next_offset)
        topic = self.topics.get(header.topic)
        topic_flag = 0 if topic is None else topic.topic_sys_flag
        group = self.groups.get(header.group)
        group_flag = 0 if group is None else group.group_sys_flag
        if found.status == status.FOUND:
            gets = self.stats.gets(header.topic, header.group)
            gets.messages += found.count
            gets.bytes += found.size
            return found_answer(
                command,
                found.next_offset,
                found.min_offset,
                found.max_offset,
                topic_flag,
                group_flag,
                found.records,
                found.size,
            )
        self.stats.misses.messages += 1
        answer = PullMessageAnswer(
            0,
            found.next_offset,
            found.min_offset,
            found.max_offset,
            topic_sys_flag=topic_flag,
            group_sys_flag=group_flag,
        )
        name = status.NAMES[found.status]
        return Reply(self._code(header, found), answer.to_fields(), name)

    @staticmethod
    def _forbidden(kind: int, text: str) -> Refusal:
        return Refusal(codes.NO_PERMISSION, text, {"forbiddenType": str(kind)})
