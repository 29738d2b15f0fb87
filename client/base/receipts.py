"""The result of a send: where the message is stored and its ids."""

import logging
from dataclasses import dataclass
from enum import StrEnum

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.send import SendMessageResponse

log = logging.getLogger(__name__)


class SendStatus(StrEnum):
    """The durability of a sent message. With every status the broker has the message.

    OK: as safe as the broker's settings say. FLUSH_DISK_TIMEOUT: not on the disk in time, with
    SYNC_FLUSH. FLUSH_SLAVE_TIMEOUT: no slave had it in time, with SYNC_MASTER.
    SLAVE_NOT_AVAILABLE: too few slaves are connected, with SYNC_MASTER.
    """

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE = {
    codes.SUCCESS: SendStatus.OK,
    codes.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    codes.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    codes.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes five times as long to make
class SendReceipt:
    """The place of a stored message, and the `status` of its durability.

    `msg_id` is the id that consumers see (UNIQ_KEY), `offset_msg_id` names broker and log offset,
    `queue_offset` is its offset in `queue`. For a part of a batch both ids are comma-separated
    lists, and the offset is that of the first message. `recall_handle`, if the broker returns one,
    recalls a delayed message (`Producer.recall`). `transaction_id` is None unless the message is
    part of a transaction.
    """

    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus
    recall_handle: str | None = None
    transaction_id: str | None = None


def receipt_of(
    found: SendMessageResponse,
    msg_id: str,
    queue: MessageQueue,
    status: SendStatus,
    *,
    in_transaction: bool = False,
) -> SendReceipt:
    """The receipt for a broker's response to a send to `queue`."""
    if found.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, found.queue_id)
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "sent %s to topic %s: queue %d of %s, offset %d, %s",
            msg_id,
            queue.topic,
            queue.queue_id,
            queue.broker_name,
            found.queue_offset,
            status.value,
        )
    return SendReceipt(
        msg_id,
        found.msg_id,
        queue,
        found.queue_offset,
        status,
        found.recall_handle,
        found.transaction_id if in_transaction else None,
    )


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """The receipts of a batch's parts, in the order of the messages."""

    receipts: list[SendReceipt]

    @property
    def msg_ids(self) -> list[str]:
        """The id of each message."""
        return [each for receipt in self.receipts for each in receipt.msg_id.split(",")]

    @property
    def status(self) -> SendStatus:
        """OK when all parts are, else that of the first which isn't."""
        odd = (receipt.status for receipt in self.receipts if receipt.status is not SendStatus.OK)
        return next(odd, SendStatus.OK)
