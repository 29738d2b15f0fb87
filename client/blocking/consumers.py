"""Consumers for code without an event loop; thread-safe.

Each runs its asyncio client on its own event loop (`Blocking`) and waits for results.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from types import TracebackType
from typing import Any

from ...protocol.bodies.body import MessageQueue
from ..base.failures import log_failure
from ..base.loop_thread import LoopThread
from ..base.message_view import MessageView
from ..base.stop_signals import Stop, stop_signals
from ..errors import ClosedError
from ..group.received import FAILED
from ..group.received import ReceivedMessage as _ReceivedMessage
from ..group.subscriptions import Expression, Topics
from ..pop import simple as _simple
from ..pull import lite_pull as _lite_pull
from ..pull import pull_consumer as _pull_consumer
from ..push import consumer as _consumer
from ..push.listening import CONCURRENCY, Function
from .sync_wrapper import Blocking, awaited, called, value_of

log = logging.getLogger(__name__)

SIGNAL_SECONDS = 0.2  # how late `run` may notice a signal
FETCH_MAX = 32  # messages brought over from the loop's thread at once


class Consumer(Blocking[_consumer.Consumer]):
    """Consumes topics as a member of a group.

        with Consumer("127.0.0.1:9876", group="billing", topics=["orders"]) as consumer:
            for message in consumer:
                with message.process():
                    ...

    The arguments are those of `client.Consumer`. Several threads may iterate over one consumer.
    The work between two messages may take as long as it likes: heartbeats go on meanwhile. With a
    `listener` that is called instead, in `concurrency` threads (see `client.Consumer.listener`);
    `run()` waits then until the program is to stop.
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
            client = _consumer.Consumer(name_server, group=group, topics=topics, **options)
            if listener is not None:
                client.listener(batch_max=batch_max, concurrency=concurrency)(listener)
            return client

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
                batch = self._run(self._client.receive_batch(FETCH_MAX, timeout))
                if not batch:
                    return None
                message = batch[0]
                self._fetched.extend(batch[1:])
            if not message.is_void:
                return ReceivedMessage(message, self._thread)
            self._thread.call(message.release)  # its queue waits for the release

    def receive_batch(
        self, messages_max: int = FETCH_MAX, timeout: float | None = None
    ) -> list["ReceivedMessage"]:
        """The next messages, one at least; an empty list where `receive` returns None."""
        first = self.receive(timeout)
        found = [] if first is None else [first]
        while found and len(found) < messages_max:
            message = self.receive(0) if self._fetched else None
            if message is None:
                break
            found.append(message)
        return found

    subscribe = awaited(_consumer.Consumer.subscribe)
    unsubscribe = awaited(_consumer.Consumer.unsubscribe)

    pause = called(_consumer.Consumer.pause)
    resume = called(_consumer.Consumer.resume)
    drain = awaited(_consumer.Consumer.drain)

    def run(self, *, handle_signals: bool = True, drain_timeout: float | None = None) -> None:
        """Block until the consumer is stopped; needs a listener. See `client.Consumer.run`."""
        stop = self._run(value_of(Stop))
        with stop_signals(stop.tell) if handle_signals else nullcontext():
            work = self._client.run_until(stop, drain_timeout)
            self._thread.run(work, signal_seconds=SIGNAL_SECONDS)
        self.close()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member holds now, sorted, without those of its retry topic."""
        return self._run(value_of(lambda: self._client.queues))


class ReceivedMessage(MessageView):
    """A message and what may be done with it: `process()`, `ack()`, `nack()`."""

    __slots__ = ("_message", "_thread")

    def __init__(self, message: _ReceivedMessage, thread: LoopThread) -> None:
        super().__init__(message.record, message.source)
        self.reconsume_times = message.reconsume_times
        self._message = message
        self._thread = thread

    def ack(self) -> None:
        """Acknowledge the message: the group may move past it. No effect if it was settled."""
        self._thread.call(self._message.settle)

    def nack(self, delay_level: int = 0) -> None:
        """Send the message back for a later try; see `client.ReceivedMessage.nack`."""
        self._thread.run(self._message.nack(delay_level))

    def release(self) -> None:
        """Release the message unsettled; this consumer may receive it again at once."""
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
            log_failure(log, error, FAILED, self._message)
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

    The arguments and the methods are those of `client.LitePullConsumer`; `assign_expressions` gives
    the expression of each topic for assigned queues. Callbacks run in the client's own thread and
    must not call the client.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str,
        assign_expressions: Mapping[str, str | Expression] | None = None,
        **options: Any,
    ) -> None:
        def make() -> _lite_pull.LitePullConsumer:
            client = _lite_pull.LitePullConsumer(name_server, group=group, **options)
            for topic, expression in (assign_expressions or {}).items():
                client.set_expression_for_assign(topic, expression)
            return client

        super().__init__("aerobee-lite-pull", make)

    subscribe = awaited(_lite_pull.LitePullConsumer.subscribe)
    unsubscribe = awaited(_lite_pull.LitePullConsumer.unsubscribe)
    assign = awaited(_lite_pull.LitePullConsumer.assign)
    on_topic_change = awaited(_lite_pull.LitePullConsumer.on_topic_change)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues being pulled, sorted."""
        return self._run(value_of(lambda: self._client.assignment))

    fetch_queues = awaited(_lite_pull.LitePullConsumer.fetch_queues)
    poll = awaited(_lite_pull.LitePullConsumer.poll)
    commit = awaited(_lite_pull.LitePullConsumer.commit)
    committed = awaited(_lite_pull.LitePullConsumer.committed)
    seek = awaited(_lite_pull.LitePullConsumer.seek)
    seek_to_begin = awaited(_lite_pull.LitePullConsumer.seek_to_begin)
    seek_to_end = awaited(_lite_pull.LitePullConsumer.seek_to_end)
    seek_to_time = awaited(_lite_pull.LitePullConsumer.seek_to_time)
    offset_for_time = awaited(_lite_pull.LitePullConsumer.offset_for_time)
    pause = called(_lite_pull.LitePullConsumer.pause)
    resume = called(_lite_pull.LitePullConsumer.resume)


class PullConsumer(Blocking[_pull_consumer.PullConsumer]):
    """Pulls queues by hand; the arguments and the methods are those of `client.PullConsumer`."""

    def __init__(
        self, name_server: str | Iterable[str] | None = None, *, group: str, **options: Any
    ) -> None:
        super().__init__(
            "aerobee-pull",
            lambda: _pull_consumer.PullConsumer(name_server, group=group, **options),
        )

    queues = awaited(_pull_consumer.PullConsumer.queues)
    balanced_queues = awaited(_pull_consumer.PullConsumer.balanced_queues)
    pull = awaited(_pull_consumer.PullConsumer.pull)
    committed = awaited(_pull_consumer.PullConsumer.committed)
    commit = awaited(_pull_consumer.PullConsumer.commit)
    min_offset = awaited(_pull_consumer.PullConsumer.min_offset)
    max_offset = awaited(_pull_consumer.PullConsumer.max_offset)
    offset_for_time = awaited(_pull_consumer.PullConsumer.offset_for_time)


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

    receive = awaited(_simple.SimpleConsumer.receive)
    ack = awaited(_simple.SimpleConsumer.ack)
    change_invisible_time = awaited(_simple.SimpleConsumer.change_invisible_time)
