"""Consumers for callers without an event loop; safe to use from several threads.

Each runs its asyncio twin on a loop of its own (`Blocking`) and waits for it.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from ..protocol.bodies.body import MessageQueue
from . import consumer as _consumer
from . import lite_pull as _lite_pull
from . import pull_consumer as _pull_consumer
from . import simple as _simple
from .blocking_twin import Blocking, value_of
from .consuming.listening import CONCURRENCY, Function
from .consuming.subscriptions import Expression, Topics
from .errors import ClosedError
from .loop_thread import LoopThread
from .received import MessageView
from .received import ReceivedMessage as _ReceivedMessage

log = logging.getLogger(__name__)

FETCH_MAX = 32  # messages brought over from the loop's thread at once


class Consumer(Blocking[_consumer.Consumer]):
    """Consumes topics as a member of a group.

        with Consumer("127.0.0.1:9876", group="billing", topics=["orders"]) as consumer:
            for message in consumer:
                with message.process():
                    ...

    The arguments are those of `client.Consumer`. Several threads may iterate over one consumer.
    The work between two messages may take as long as it likes: heartbeats go on meanwhile. With a
    `listener` that is called instead, in `concurrency` threads (see `client.Consumer.listener`).
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str,
        topics: Topics,
        listener: Function | None = None,
        batch_max: int | None = None,
        concurrency: int = CONCURRENCY,
        **options: Any,
    ) -> None:
        def make() -> _consumer.Consumer:
            twin = _consumer.Consumer(name_server, group=group, topics=topics, **options)
            if listener is not None:
                twin.listener(batch_max=batch_max, concurrency=concurrency)(listener)
            return twin

        super().__init__("aerobee-consumer", make)
        self._fetched: deque[_ReceivedMessage] = deque()

    def __iter__(self) -> Iterator["ReceivedMessage"]:
        while not self._thread.is_closed:
            try:
                message = self.receive()
            except ClosedError:
                return  # by another thread, or by the work on the message before
            if message is None:
                return
            yield message

    def receive(self, timeout: float | None = None) -> "ReceivedMessage | None":
        """The next message; None after `timeout` seconds without one, or once closed."""
        while True:
            try:
                message = self._fetched.popleft()
            except IndexError:
                # A hop between threads costs as much as a dozen messages: fetch several at once.
                batch = self._run(self._twin.receive_batch(FETCH_MAX, timeout))
                if not batch:
                    return None
                message = batch[0]
                self._fetched.extend(batch[1:])
            if not message.is_void:
                return ReceivedMessage(message, self._thread)
            self._thread.call(message.release)  # its queue waits for it to be let go

    def drain(self, timeout: float | None = None) -> bool:
        """Settle everything that is here, commit and leave; see `client.Consumer.drain`."""
        return self._run(self._twin.drain(timeout))

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member holds now, sorted, without those of its retry topic."""
        return self._run(value_of(lambda: self._twin.queues))


class ReceivedMessage(MessageView):
    """A message and what may be done with it: `process()`, `ack()`, `nack()`."""

    __slots__ = ("_message", "_thread")

    def __init__(self, message: _ReceivedMessage, thread: LoopThread) -> None:
        super().__init__(message.record, message.held)
        self.reconsume_times = message.reconsume_times
        self._message = message
        self._thread = thread

    def ack(self) -> None:
        """It is done: the group may move past it. Nothing when it was settled before."""
        self._thread.call(self._message.settle)

    def nack(self, delay_level: int = 0) -> None:
        """Send it back for a later try; see `client.ReceivedMessage.nack`."""
        self._thread.run(self._message.nack(delay_level))

    def release(self) -> None:
        """Let go of it unsettled: it may be received again at once, here."""
        self._thread.call(self._message.release)

    def process(self) -> "Processing":
        """A context for the work on it: leaving it acknowledges.

        Raising an Exception inside logs it and sends the message back for a later try; the loop
        around goes on.
        """
        return Processing(self)


class Processing:
    """The work on one message, as `with`."""

    __slots__ = ("_message",)

    def __init__(self, message: ReceivedMessage) -> None:
        self._message = message

    def __enter__(self) -> ReceivedMessage:
        return self._message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self._message.ack()
        elif isinstance(error, Exception):
            log.error("processing %r failed, it comes again", self._message, exc_info=error)
            self._message.nack()
            return True
        else:
            self._message.release()
        return False


class LitePullConsumer(Blocking[_lite_pull.LitePullConsumer]):
    """Polls topics or queues.

        with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders")
            for message in consumer.poll():
                ...

    The arguments and the methods are those of `client.LitePullConsumer`.
    """

    def __init__(
        self, name_server: str | Iterable[str] | None = None, *, group: str, **options: Any
    ) -> None:
        super().__init__(
            "aerobee-lite-pull",
            lambda: _lite_pull.LitePullConsumer(name_server, group=group, **options),
        )

    def subscribe(self, topic: str, expression: str | Expression = "*") -> None:
        """Share a topic's queues with the group."""
        self._run(self._twin.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Let go of a topic's queues, committed."""
        self._run(self._twin.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Pull exactly these queues, whoever else does."""
        self._run(self._twin.assign(queues))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are pulled here now, sorted."""
        return self._run(value_of(lambda: self._twin.assignment))

    def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic as they are now."""
        return self._run(self._twin.fetch_queues(topic))

    def poll(self, timeout: float = _lite_pull.POLL_SECONDS) -> list[MessageView]:
        """Messages of one queue, in order; an empty list after `timeout` seconds without any."""
        return self._run(self._twin.poll(timeout))

    def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit what was polled, of all queues or of some, or these very offsets."""
        self._run(self._twin.commit(offsets, persist=persist))

    def committed(self, queue: MessageQueue) -> int:
        """The group's offset in a queue, -1 when there is none."""
        return self._run(self._twin.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` of a queue."""
        self._run(self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of a queue."""
        self._run(self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on at the next message that a queue gets."""
        self._run(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, ms: int) -> None:
        """Go on at the first message that was stored at `ms` (since the epoch) or later."""
        self._run(self._twin.seek_to_time(queue, ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these no more until `resume`."""
        self._run(value_of(lambda: self._twin.pause(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these again."""
        self._run(value_of(lambda: self._twin.resume(queues)))


class PullConsumer(Blocking[_pull_consumer.PullConsumer]):
    """Pulls queues by hand; the arguments and the methods are those of `client.PullConsumer`."""

    def __init__(
        self, name_server: str | Iterable[str] | None = None, *, group: str, **options: Any
    ) -> None:
        super().__init__(
            "aerobee-pull",
            lambda: _pull_consumer.PullConsumer(name_server, group=group, **options),
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted."""
        return self._run(self._twin.queues(topic))

    def balanced_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that are this member's share now."""
        return self._run(self._twin.balanced_queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str | Expression = "*",
        *,
        max_messages: int = 32,
        wait_ms: int = 0,
    ) -> _pull_consumer.PullOutcome:
        """The messages from `offset` on; see `client.PullConsumer.pull`."""
        return self._run(
            self._twin.pull(queue, offset, expression, max_messages=max_messages, wait_ms=wait_ms)
        )

    def committed(self, queue: MessageQueue) -> int:
        """The group's offset in a queue, -1 when there is none."""
        return self._run(self._twin.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """The group is at `offset` now."""
        self._run(self._twin.commit(queue, offset))


class SimpleConsumer(Blocking[_simple.SimpleConsumer]):
    """Takes messages for a while; the arguments are those of `client.SimpleConsumer`.

    with SimpleConsumer("127.0.0.1:9876", group="mail", topics=["orders"]) as consumer:
        for message in consumer.receive():
            consumer.ack(message)
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str,
        topics: Topics,
        **options: Any,
    ) -> None:
        super().__init__(
            "aerobee-simple",
            lambda: _simple.SimpleConsumer(name_server, group=group, topics=topics, **options),
        )

    def receive(
        self,
        max_messages: int = _simple.BATCH_MAX,
        *,
        invisible: float = _simple.INVISIBLE_SECONDS,
        timeout: float = _simple.WAIT_SECONDS,
    ) -> list[_simple.PoppedMessage]:
        """At least one message; none after `timeout` seconds without any."""
        return self._run(self._twin.receive(max_messages, invisible=invisible, timeout=timeout))

    def ack(self, message: _simple.PoppedMessage) -> None:
        """The message is done."""
        self._run(self._twin.ack(message))

    def change_invisible_time(self, message: _simple.PoppedMessage, seconds: float) -> None:
        """The message stays ours for so long from now on."""
        self._run(self._twin.change_invisible_time(message, seconds))
