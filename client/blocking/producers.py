"""Producers for code without an event loop; thread-safe."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from ..base.message import Message
from ..base.receipts import BatchReceipt, SendReceipt
from ..cluster.route import MessageQueue
from ..producer import producer as _producer
from ..producer import transactions as _transactions
from ..producer.broker_requests import TransactionState
from ..producer.producer import DEFAULT_GROUP, SEND_SECONDS
from ..producer.transactions import Checker
from .sends import BegunSends
from .sync_wrapper import Blocking, awaited


class Producer(Blocking[_producer.Producer]):
    """Sends messages.

        with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = producer.send(Message("orders", b"...", tags="paid"))

    The arguments are those of `client.Producer`. Threads that send at the same time share a
    connection and don't wait for each other.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        **options: Any,
    ) -> None:
        self._set_up(lambda: _producer.Producer(name_server, group=group, **options))

    def _set_up(self, client: Callable[[], _producer.Producer]) -> None:
        super().__init__("aerobee-producer", client)
        self._begun = BegunSends(self._thread, self._client)

    def close(self) -> None:
        """Close the connections and end the thread. May be called twice, and by any thread."""
        try:
            super().close()
        finally:
            self._begun.close()

    send = awaited(_producer.Producer.send)

    def send_soon(self, message: Message, *, timeout: float = SEND_SECONDS) -> Future[SendReceipt]:
        """Start a send without waiting; the future has the result or exception of `send`.

        The fastest way to send many messages, several times the rate of `send` from many threads:

            begun = [producer.send_soon(message) for message in messages]
            receipts = [each.result() for each in begun]
        """
        return self._begun.begin(message, timeout)

    send_oneway = awaited(_producer.Producer.send_oneway)

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float = SEND_SECONDS,
    ) -> BatchReceipt:
        """Send many messages of one topic in few requests; see `client.Producer.send_batch`."""
        return self._run(self._client.send_batch(list(messages), queue=queue, timeout=timeout))

    request = awaited(_producer.Producer.request)
    reply = awaited(_producer.Producer.reply)
    recall = awaited(_producer.Producer.recall)
    queues = awaited(_producer.Producer.queues)


class TransactionProducer(Producer):
    """Sends messages as parts of local transactions.

        with TransactionProducer("127.0.0.1:9876", group="shop", check=check) as producer:
            with producer.transaction(Message("orders", b"...", keys=["o-1"])):
                database.insert(...)       # leaving commits, raising rolls back

    The arguments and the methods are those of `client.TransactionProducer`; a `check` or
    `local` that is an ordinary function runs in a thread.
    """

    _client: _transactions.TransactionProducer

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str,
        check: Checker,
        **options: Any,
    ) -> None:
        self._set_up(
            lambda: _transactions.TransactionProducer(
                name_server, group=group, check=check, **options
            ),
        )

    begin = awaited(_transactions.TransactionProducer.begin)
    end = awaited(_transactions.TransactionProducer.end)
    end_confirmed = awaited(_transactions.TransactionProducer.end_confirmed)

    @contextmanager
    def transaction(self, message: Message, timeout: float = SEND_SECONDS) -> Iterator[SendReceipt]:
        """The block as local transaction: leaving it commits the message, raising rolls it back."""
        receipt = self._run(self._client.begin(message, timeout))
        try:
            yield receipt
        except BaseException:
            self._run(self._client.end(receipt, TransactionState.ROLLBACK))
            raise
        self._run(self._client.end(receipt, TransactionState.COMMIT))

    send_in_transaction = awaited(_transactions.TransactionProducer.send_in_transaction)
