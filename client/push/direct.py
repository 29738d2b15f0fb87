"""Direct consumption of one message, at an administrator's request (309).

The message goes to the listener, or to an iterating task; nothing is committed for it.
"""

import asyncio

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.running import ConsumeMessageDirectlyResult
from ...protocol.message.record import decode_record
from ..group.inbox import Inbox
from ..group.process_queue import Limits, ProcessQueue
from ..group.received import ReceivedMessage
from .listening import Workers

DIRECT_SECONDS = 60.0  # until an iterating task takes and settles it


async def consume_directly(
    stored: bytes,
    broker_name: str,
    namespace: str,
    workers: Workers | None,
    inbox: Inbox[ReceivedMessage],
) -> ConsumeMessageDirectlyResult:
    """The result of consuming the message: CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION and so on."""
    record = decode_record(stored)
    queue = MessageQueue(record.topic, broker_name, record.queue_id)
    process_queue = ProcessQueue(queue, record.queue_offset, Limits(), namespace=namespace)
    process_queue.hold(record.queue_offset, len(record.body))
    once = _Once()
    message = ReceivedMessage(record, process_queue, once)
    if workers is not None:
        verdict = await workers.call(process_queue, [message])
        return ConsumeMessageDirectlyResult(
            consume_result=verdict.result,
            remark=repr(verdict.error) if verdict.error is not None else None,
        )
    inbox.put_first(message)
    try:
        async with asyncio.timeout(DIRECT_SECONDS):
            return ConsumeMessageDirectlyResult(consume_result=await once.result)
    except TimeoutError:
        process_queue.drop()
        return ConsumeMessageDirectlyResult(
            consume_result="CR_LATER",
            remark=f"the application did not settle it within {DIRECT_SECONDS:g} s",
        )


class _Once:
    """Settles one message that an administrator sent."""

    def __init__(self) -> None:
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def taken(self, message: ReceivedMessage) -> None:
        pass

    def acknowledge(self, message: ReceivedMessage) -> None:
        self._set("CR_SUCCESS")

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        self._set("CR_LATER")

    def again(self, message: ReceivedMessage) -> None:
        self._set("CR_LATER")

    def _set(self, result: str) -> None:
        if not self.result.done():
            self.result.set_result(result)
