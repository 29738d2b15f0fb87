"""Sends that a thread starts without waiting, passed to the loop's thread in batches.

Waking a loop costs more than a send, so one wake-up covers all sends queued until the loop runs.
Every send ends: sends left over when the loop closes fail.
"""

from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from ..base.loop_thread import LoopThread
from ..base.message import Message
from ..base.receipts import SendReceipt
from ..errors import ClosedError
from ..producer.producer import BEGUN_MAX, too_many_begun

if TYPE_CHECKING:
    import asyncio

    from ..producer.producer import Producer

WHILE_SENDING = "the producer was closed while it was sending; make a new one and send it again"


class BegunSends:
    """Passes sends to the producer on the loop of `thread`."""

    def __init__(self, thread: LoopThread, producer: "Producer") -> None:
        self._thread = thread
        self._producer = producer
        self._waiting: deque[tuple[Message, float, Future[SendReceipt]]] = deque()
        self._is_woken = False

    def begin(self, message: Message, timeout_s: float) -> Future[SendReceipt]:
        """Start a send, from any thread; ClosedError after the loop has ended."""
        future: Future[SendReceipt] = Future()
        if len(self._waiting) >= BEGUN_MAX:
            future.set_exception(too_many_begun(len(self._waiting)))
            return future
        self._waiting.append((message, timeout_s, future))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._thread.call(self._send_all)
            except ClosedError:
                self.close()
                raise
        return future

    def close(self) -> None:
        """Fail the remaining sends after the loop has ended."""
        self._is_woken = False  # first: later sends then notice the closed loop themselves
        while self._waiting:
            _, _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(ClosedError(WHILE_SENDING))

    def _send_all(self) -> None:
        self._is_woken = False  # first: later sends then wake the loop again
        waiting = self._waiting
        while waiting:
            message, timeout_s, future = waiting.popleft()
            if future.set_running_or_notify_cancel():
                sending = self._producer.send_soon(message, timeout=timeout_s)
                sending.add_done_callback(partial(_hand_over, future))


def _hand_over(future: Future[SendReceipt], sending: "asyncio.Future[SendReceipt]") -> None:
    if sending.cancelled():
        wrong: BaseException | None = ClosedError(WHILE_SENDING)
    else:
        wrong = sending.exception()
    if wrong is not None:
        future.set_exception(wrong)
    else:
        future.set_result(sending.result())
