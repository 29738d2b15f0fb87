"""Sending a message back to its broker, which delivers it again through the retry topic.

If the broker refuses or is unreachable, the message is sent to the group's retry topic on any
broker. If that fails too, the caller keeps it.
"""

import logging
import random

from ...protocol import codes
from ...protocol.headers.send import ConsumerSendMsgBack, SendMessage
from ...protocol.message import properties as props
from ...protocol.message.record import COMPRESSED, COMPRESSION_MASK, MULTI_TAGS
from ...protocol.names import RETRY_PREFIX
from ...protocol.queues.logical_queues import MOCK_BROKER_PREFIX
from ..base.identity import now_ms
from ..base.receipts import STATUS_OF_CODE
from ..cluster.cluster import Cluster
from ..errors import AerobeeError, BrokerError, ClientError
from .received import ReceivedMessage

log = logging.getLogger(__name__)

SEND_BACK_SECONDS = 5.0
FIRST_LEVEL = 3  # 10 s with the broker's defaults; one level more each time
TRIES = 3
QUEUES = 4  # defaultTopicQueueNums, for a retry topic that isn't there yet
CLIENT_PRODUCER = "CLIENT_INNER_PRODUCER"  # the group of the producer inside each Java client


class SendBack:
    """Sends messages of one group back, with its `max_reconsume_times`."""

    def __init__(self, cluster: Cluster, group: str, max_reconsume_times: int) -> None:
        self._cluster = cluster
        self._group = group
        self.max_reconsume_times = max_reconsume_times

    async def give_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Send CONSUMER_SEND_MSG_BACK or, if that fails, the message to the retry topic.

        Raises the error of the latter.

        `delay_level` 0 grows by itself, -1 is the dead letter topic. A message of a static topic is
        always sent: its broker, which alone can take it back, may not be the queue's leader.
        """
        if message.queue.broker_name.startswith(MOCK_BROKER_PREFIX):
            await self.send_to_retry_topic(message)
            return
        header = ConsumerSendMsgBack(
            message.record.log_offset,
            self._group,
            delay_level,
            message.msg_id,
            message.sent_topic,
            max_reconsume_times=self.max_reconsume_times,
        )
        try:
            address = self._cluster.address_for(message.queue)
            code = codes.CONSUMER_SEND_MSG_BACK
            await self._cluster.ask(address, code, header, timeout_s=SEND_BACK_SECONDS)
        except AerobeeError as wrong:
            log.warning(
                "message %s is not taken back, it is sent to the retry topic: %s",
                message.msg_id,
                wrong,
            )
            await self.send_to_retry_topic(message, for_good=delay_level < 0)

    async def send_to_retry_topic(
        self, message: ReceivedMessage, *, for_good: bool = False
    ) -> None:
        """Send a message to the retry topic; after the last try the broker makes it a dead letter.

        With `for_good` it becomes a dead letter at once: the request allows no further try.
        """
        topic = RETRY_PREFIX + self._group
        record, pairs = message.record, dict(message.stored_properties)
        sys_flag = record.sys_flag & (COMPRESSED | COMPRESSION_MASK | MULTI_TAGS)
        times = message.reconsume_times
        pairs[props.ORIGIN_MESSAGE_ID] = pairs.get(props.ORIGIN_MESSAGE_ID) or message.msg_id
        pairs[props.RETRY_TOPIC] = message.sent_topic
        pairs[props.DELAY] = str(FIRST_LEVEL + times)
        # The first two travel in the header, and a transaction it is no more.
        for name in (props.RECONSUME_TIME, props.MAX_RECONSUME_TIMES, props.TRAN_MSG):
            pairs.pop(name, None)
        route = await self._cluster.publish_route(topic)
        failure: AerobeeError = ClientError(f"topic {topic} has no queue that can be written")
        queues = random.sample(route.publish, len(route.publish))
        for queue in sorted(queues, key=lambda each: each.broker_name == message.queue.broker_name)[
            :TRIES
        ]:
            header = SendMessage(
                CLIENT_PRODUCER,
                topic,
                "TBW102",
                QUEUES,
                queue.queue_id,
                sys_flag,
                now_ms(),
                record.flag,
                props.encode(pairs).decode(),
                times + 1,
                False,
                0 if for_good else self.max_reconsume_times,
                False,
                queue.broker_name,
            )
            try:
                address = self._cluster.address_for(queue)
                code, fields = codes.SEND_MESSAGE_V2, header.to_fields()
                answer = await self._cluster.request(
                    address, code, fields, record.body, SEND_BACK_SECONDS
                )
            except ClientError as wrong:
                failure = wrong
                continue
            if answer.code in STATUS_OF_CODE:
                return
            failure = BrokerError(answer.code, answer.remark, address, f"take a retry of {topic}")
        raise failure
