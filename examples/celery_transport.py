"""Tasks of Celery through aerobee: a transport for Kombu, Celery's messaging library.

A queue of Celery is a topic, and its workers are one group. A task that a worker takes is invisible
to others for INVISIBLE_SECONDS; when the worker dies before that, another one gets it. So a task
must end within that time, and may run twice. There is no fanout: start workers with
`--without-gossip --without-mingle`, and set worker_enable_remote_control=False, as with Amazon SQS.
"""

import json
import os
from queue import Empty
from typing import Any

from aerobee.client import Message
from aerobee.client.blocking import Producer, SimpleConsumer
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu.transport import TRANSPORT_ALIASES, virtual

INVISIBLE_SECONDS = 300
WAIT_SECONDS = 1


class Channel(virtual.Channel):
    """The queues of one connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._servers = f"{self.connection.client.hostname}:{self.connection.client.port}"
        self._producer: Producer | None = None
        self._receivers: dict[str, SimpleConsumer] = {}
        self._taken: dict[str, Any] = {}  # messages by delivery tag

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        if self._producer is None:
            self._producer = Producer(self._servers, group="celery")
        self._producer.send(Message(queue, json.dumps(message).encode()))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        consumer = self._receivers.get(queue)
        if consumer is None:
            consumer = SimpleConsumer(
                self._servers, group="celery", topics=[queue], start="earliest"
            )
            self._receivers[queue] = consumer
        found = consumer.receive(max_messages=1, invisible=INVISIBLE_SECONDS, timeout=WAIT_SECONDS)
        if not found:
            raise Empty
        message: dict[str, Any] = json.loads(found[0].body)
        self._taken[message["properties"]["delivery_tag"]] = consumer, found[0]
        return message

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        super().basic_ack(delivery_tag, multiple)  # type: ignore[no-untyped-call]
        consumer, message = self._taken.pop(delivery_tag)
        consumer.ack(message)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not requeue:
            self.basic_ack(delivery_tag)
            return
        self.qos.ack(delivery_tag)
        consumer, message = self._taken.pop(delivery_tag)
        consumer.change_invisible_time(message, 1)

    def _restore(self, message: Any) -> None:
        """Nothing: what was not acknowledged comes again by itself."""

    def _size(self, queue: str) -> int:
        return 0

    def _purge(self, queue: str) -> int:
        return 0

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return True

    def close(self) -> None:
        super().close()  # type: ignore[no-untyped-call]
        for client in (self._producer, *self._receivers.values()):
            if client is not None:
                client.close()
        self._receivers.clear()
        self._producer = None


class Transport(virtual.Transport):
    """The transport of URLs that begin with aerobee://."""

    Channel = Channel
    default_port = 9876  # type: ignore[assignment]
    polling_interval = 0.01  # a receive waits by itself
    driver_type = driver_name = "aerobee"


TRANSPORT_ALIASES["aerobee"] = f"{__name__}:Transport"
app = Celery(
    "bills",
    broker=f"aerobee://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:9876')}",
    backend="cache+memory://",  # results stay in this process
)
app.conf.task_acks_late = True  # a task is acknowledged when it is done
app.conf.worker_enable_remote_control = False


@app.task  # type: ignore[untyped-decorator]
def bill(amount: str) -> str:
    return f"billed {amount}"


if __name__ == "__main__":
    task = bill.delay("12 EUR")  # the first one makes the topic
    with start_worker(app, pool="solo", perform_ping_check=False):
        print(task.get(timeout=60))
