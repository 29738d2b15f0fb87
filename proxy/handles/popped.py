"""Requests about popped messages: acknowledge, change how long one is invisible, dead letters."""

from ...protocol import codes
from ...protocol.headers.pop import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeResponse
from ...protocol.headers.send import ConsumerSendMsgBack
from ..messages.status import Code, StatusError
from ..routes.brokers import Brokers
from ..routes.topics import Topics
from .receipt import Receipt, changed

TO_DEAD_LETTERS = -1  # as delay level


class Popped:
    """Speaks to the broker that a handle names."""

    def __init__(self, brokers: Brokers, topics: Topics) -> None:
        self._brokers = brokers
        self._topics = topics

    async def ack(self, group: str, topic: str, receipt: Receipt) -> None:
        """Acknowledge; StatusError when the handle is expired or the broker refuses."""
        address = await self._address(topic, receipt)
        self._check_time(receipt)
        known = receipt.known
        header = AckMessage(
            group, receipt.topic(topic, group), known.queue_id, receipt.text, known.offset
        )
        try:
            await self._brokers.ask(address, codes.ACK_MESSAGE, header)
        except StatusError as wrong:
            raise _refused("ack failed: status is abnormal", wrong) from None

    async def change(self, group: str, topic: str, receipt: Receipt, ms: int) -> Receipt:
        """Make the message visible in `ms` from now; its new handle."""
        address = await self._address(topic, receipt)
        self._check_time(receipt)
        known, code = receipt.known, codes.CHANGE_MESSAGE_INVISIBLETIME
        header = ChangeInvisibleTime(
            group, receipt.topic(topic, group), known.queue_id, receipt.text, known.offset, ms
        )
        try:
            answer = await self._brokers.ask(address, code, header)
        except StatusError as wrong:
            raise _refused("changeInvisibleDuration failed: status is abnormal", wrong) from None
        new = answer.header(ChangeInvisibleTimeResponse)
        return changed(receipt, new.pop_ms, new.invisible_ms, new.revive_queue_id)

    async def forward(self, group: str, topic: str, receipt: Receipt, message_id: str) -> None:
        """Put the message into the group's dead letter topic, then acknowledge it."""
        address = await self._address(topic, receipt)
        if receipt.log_offset < 0:
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        header = ConsumerSendMsgBack(
            receipt.log_offset,
            group,
            TO_DEAD_LETTERS,
            message_id,
            receipt.topic(topic, group),
            max_reconsume_times=0,
        )
        await self._brokers.ask(address, codes.CONSUMER_SEND_MSG_BACK, header)
        try:
            await self.ack(group, topic, receipt)
        except StatusError as wrong:
            if wrong.code != Code.INVALID_RECEIPT_HANDLE:
                raise

    async def _address(self, topic: str, receipt: Receipt) -> str:
        name = receipt.known.broker_name
        found = await self._topics.address(name, topic)
        if found is None:
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, f"cannot find broker {name[:200]}")
        return found

    def _check_time(self, receipt: Receipt) -> None:
        late = self._brokers.now_ms() - receipt.visible_ms
        if late >= 0:
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                f"receipt handle is expired: the message was invisible until {late} ms ago",
            )


def _refused(what: str, wrong: StatusError) -> StatusError:
    """The refusal with what was refused before the broker's remark."""
    if wrong.code == Code.MESSAGE_CORRUPTED:  # MESSAGE_ILLEGAL: such a message isn't there
        return StatusError(Code.INVALID_RECEIPT_HANDLE, f"{what}: {wrong.message}")
    return StatusError(wrong.code, f"{what}: {wrong.message}")
