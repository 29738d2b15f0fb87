"""CONSUMER_SEND_MSG_BACK (36): a message that a consumer could not process comes back.

It waits on a delay level that grows with each try, then appears in the group's retry topic; after
too many tries it goes to the dead letters.
"""

import random
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.send import ConsumerSendMsgBack
from ...protocol.message import properties
from ...protocol.message.message_id import offset_message_id
from ...protocol.message.record import Record, decode_record
from ...protocol.message.tags import tag_hash
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...store.base.errors import StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..groups.permissions import Permissions
from ..pull.query_handlers import WHY_NOT_THERE
from ..runtime.stats import Stats
from ..scheduled.delays import SCHEDULE_TOPIC, Delays
from ..scheduled.delivery_policy import TIME_NAMES
from ..scheduled.real_destination import delayed
from ..topics.topics import Topics

RECONSUME_VERSION_MIN = 121  # V3_4_9: from here on a client's maxReconsumeTimes counts
FIRST_RETRY_LEVEL = 3


@dataclass(slots=True, eq=False)
class RetryHandlers:
    """Takes messages back."""

    store: MessageStore
    topics: Topics
    permissions: Permissions
    delays: Delays
    stats: Stats

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.CONSUMER_SEND_MSG_BACK,
                ConsumerSendMsgBack,
                self.on_send_back,
                needs.send_back(self.store.message_at),
                gates.SEND_BACK,
            )
        ]

    def on_send_back(
        self, header: ConsumerSendMsgBack, command: Command, connection: Connection
    ) -> Response:
        group = self.permissions.require_group(header.group)
        self.permissions.require_writable_broker()
        if group.retry_queue_nums <= 0:
            return OK
        # As in RocketMQ the retry topic is there, and open, for the last try, too; dead letters are
        # taken whatever the perm of their topic says.
        target = self.topics.retries(
            RETRY_PREFIX + header.group, group.retry_queue_nums, unit=header.unit_mode
        )
        self.permissions.require_writable(target)
        data = self.store.message_at(header.offset)
        if data is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"look message by offset failed, {header.offset}: {WHY_NOT_THERE}",
            )
        message = decode_record(data)
        tries_max = group.retry_max_times
        if command.version >= RECONSUME_VERSION_MIN and header.max_reconsume_times is not None:
            tries_max = header.max_reconsume_times
        level = header.delay_level
        queues = 1
        is_dead = message.reconsume_times >= tries_max or level < 0
        if is_dead:
            self.stats.dead_letter(header.origin_topic or message.topic, header.group)
            target = self.topics.dead_letters(DLQ_PREFIX + header.group)
            level = 0
        else:
            queues = min(group.retry_queue_nums, target.config.write_queue_nums)
            level = min(
                level or FIRST_RETRY_LEVEL + message.reconsume_times, len(self.delays.levels_ms)
            )
        tags, pairs = _properties(message, level, is_dead=is_dead)
        queue_id = random.randrange(max(1, queues))  # noqa: S311
        text = properties.encode(pairs).decode()
        name = target.name
        if level > 0:
            text = delayed(text, name, queue_id)
            name, queue_id = SCHEDULE_TOPIC, level - 1
        try:
            start, _, end = self.store.put(
                Message(
                    (name, queue_id),
                    message.flag,
                    message.sys_flag,
                    message.born_ms,
                    message.born_host,
                    message.body,
                    text.encode(),
                    tag_hash(tags),
                    message.reconsume_times + 1,
                ),
            )
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        if level > 0:
            self.stats.put(SCHEDULE_TOPIC, end - start)
        # A message that comes back again is still one of its first topic.
        self.stats.send_backs(pairs[properties.RETRY_TOPIC], header.group).messages += 1
        return OK


def _properties(message: Record, level: int, *, is_dead: bool) -> tuple[str | None, dict[str, str]]:
    """The tags of a message, and its properties for another try at this delay level, or as a dead
    letter (level 0)."""
    pairs = properties.decode(message.raw_properties)
    tags = pairs.get(properties.TAGS)
    pairs.setdefault(properties.RETRY_TOPIC, message.topic)
    if not pairs.get(properties.ORIGIN_MESSAGE_ID, "").strip():
        pairs[properties.ORIGIN_MESSAGE_ID] = offset_message_id(
            message.store_host, message.log_offset
        )
    pairs[properties.WAIT] = "false"
    if not is_dead:
        # The level wins over a time of the message's own, as at any send.
        for name in (properties.REAL_TOPIC, properties.REAL_QID, *TIME_NAMES):
            pairs.pop(name, None)
    pairs.pop(properties.DELAY, None)
    pairs[properties.DELAY] = str(level)
    return tags, pairs
