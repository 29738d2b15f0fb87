"""Dead letters: messages that a consumer group gave up, and how it gets them once more."""

import random

from ...protocol import codes
from ...protocol.message import properties as props
from ...protocol.message.pop_handles import normal_topic, retry_topic
from ...protocol.message.record import COMPRESSED, COMPRESSION_MASK, MULTI_TAGS, Record
from ...protocol.names import RETRY_PREFIX
from ..base.receipts import STATUS_OF_CODE
from ..cluster.cluster import topic_names
from ..errors import BrokerError, ClientError, NoRouteError
from ..producer.encoding import EncodedMessage
from .base import ADMIN_SECONDS
from .groups import GroupAdmin

PRODUCER_GROUP = "aerobee-dlq"
ORDERED = "PROP_CONSUMEORDERLY"  # in the running info of a member
_OF_EARLIER_DELIVERIES = frozenset(
    {
        props.DELAY,
        props.RECONSUME_TIME,
        props.MAX_RECONSUME_TIMES,
        props.TRAN_MSG,
        props.REAL_TOPIC,
        props.REAL_QID,
        props.CONSUME_START_TIME,
        props.FIRST_POP_TIME,
        props.POP_CK,
        props.TIMER_DELAY_SEC,
        props.TIMER_DELAY_MS,
        props.TIMER_DELIVER_MS,
    }
)
_OF_RETRIES = frozenset(
    {
        props.RETRY_TOPIC,
        props.ORIGIN_MESSAGE_ID,
        props.DLQ_ORIGIN_TOPIC,
        props.DLQ_ORIGIN_MESSAGE_ID,
    }
)


class DeadLetterAdmin(GroupAdmin):
    """The calls about dead letters."""

    async def resend(self, letter: Record, group: str, *, original: bool = False) -> str:
        """Have a group get one of its dead letters again, with all its tries; the topic it went to.

        That is a retry topic of the group, or with `original` the topic that the message was sent
        to, where every group gets it. The dead letter stays where it is. ClientError for a group
        that consumes in order: brokers make a dead letter of its retries at once.
        """
        topic = origin_of(letter, group)
        if not original:
            topic = await self._retry_topic(topic, group)
        await self._send_letter(letter, topic, original=original)
        return topic

    async def _send_letter(
        self, letter: Record, topic: str, *, original: bool, keys: str | None = None
    ) -> None:
        """Send a dead letter to a topic with one request. With `original` without what says that
        it is a retry; with `keys` these are its keys."""
        route = await self._open().publish_route(topic)
        if not route.publish:
            raise ClientError(f"topic {topic} can't be written now; check its permission")
        queue = random.choice(route.publish)  # noqa: S311
        pairs = without_deliveries(letter.properties, original=original)
        if keys is not None:
            pairs[props.KEYS] = keys
        code, text = codes.SEND_MESSAGE_V2, props.encode(pairs).decode()
        flags = letter.sys_flag & (COMPRESSED | COMPRESSION_MASK | MULTI_TAGS)
        copy = EncodedMessage(topic, code, letter.body, text, letter.flag, flags, "", batch=False)
        header = copy.header(PRODUCER_GROUP, queue)
        address = self._open().address_of(queue.broker_name)
        answer = await self._open().request(address, code, header, letter.body, ADMIN_SECONDS)
        if answer.code not in STATUS_OF_CODE:
            raise BrokerError(answer.code, answer.remark, address, f"send to {topic}")

    async def _retry_topic(self, topic: str, group: str) -> str:
        """The group's retry topic for messages of `topic`; popped messages have one of their own.

        ClientError for a group that consumes in order.
        """
        if await self._is_ordered(group):
            raise ClientError(
                f"group {group} consumes in order, so brokers make a dead letter of each retry at "
                "once; send to the original topic instead"
            )
        known = set(await topic_names(self._open()))
        popped = (retry_topic(topic, group, v2=v2) for v2 in (True, False))
        return next((name for name in popped if name in known), RETRY_PREFIX + group)

    async def _is_ordered(self, group: str) -> bool:
        online = await self.consumer_connection(group)
        if online is None or not online.connection_set:
            return False
        try:
            info = await self.running_info(group, online.connection_set[0].client_id)
        except (BrokerError, NoRouteError):
            return False  # it doesn't say, or has left meanwhile
        return info.properties.get(ORDERED, "").lower() == "true"


def without_deliveries(pairs: dict[str, str], *, original: bool) -> dict[str, str]:
    """The properties of a dead letter without its earlier deliveries, with `original` also without
    what says that it is a retry."""
    dropped = _OF_EARLIER_DELIVERIES | (_OF_RETRIES if original else frozenset())
    return {name: value for name, value in pairs.items() if name not in dropped}


def origin_of(letter: Record, group: str) -> str:
    """The topic that a dead letter of a group was sent to first."""
    pairs = letter.properties
    found = pairs.get(props.DLQ_ORIGIN_TOPIC) or pairs.get(props.RETRY_TOPIC) or letter.topic
    return normal_topic(found, group)
