"""What a program with rocketmq-python-client does; a line of JSON for each part.

python_program.py HOST:PORT
"""

# mypy: ignore-errors
# The client is in a folder of its own, and another package of its name may be in ours.

import json
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

SECONDS = 60
CONFIGURATION = ClientConfiguration(sys.argv[1], Credentials())


def message(topic: str, body: str) -> Message:
    found = Message()
    found.topic = topic
    found.body = body.encode()
    return found


def told(part: str, found: object) -> None:
    print(json.dumps({"part": part, "found": found}), flush=True)


def received(topic: str, group: str, count: int) -> list[str]:
    """The bodies of this many messages, acknowledged, with their attempts."""
    consumer = SimpleConsumer(CONFIGURATION, group, {topic: FilterExpression()}, await_duration=5)
    consumer.startup()
    found: list[str] = []
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        for each in consumer.receive(16, 30):
            found.append(f"{each.body.decode()}#{each.delivery_attempt}")
            consumer.ack(each)
    consumer.shutdown()
    return sorted(found)


class Listener(MessageListener):
    """Fails once for each body in `failing`."""

    def __init__(self, count: int, failing: tuple[str, ...] = ()) -> None:
        self.found: list[str] = []
        self.done = threading.Event()
        self._count = count
        self._failing = set(failing)

    def consume(self, message: Message) -> ConsumeResult:
        body = message.body.decode()
        self.found.append(f"{body}#{message.delivery_attempt}")
        if body in self._failing:
            self._failing.discard(body)
            return ConsumeResult.FAILURE
        if len(self.found) >= self._count:
            self.done.set()
        return ConsumeResult.SUCCESS


def pushed(topic: str, group: str, listener: Listener) -> list[str]:
    consumer = PushConsumer(CONFIGURATION, group, listener, {topic: FilterExpression()})
    consumer.startup()
    listener.done.wait(SECONDS)
    consumer.shutdown()
    return listener.found


class Checker(TransactionChecker):
    """Commits what is asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, message: Message) -> TransactionResolution:
        self.asked.append(message.body.decode())
        return TransactionResolution.COMMIT


def main() -> None:
    checker = Checker()
    producer = Producer(CONFIGURATION, ("Normal", "Fifo", "Delay", "Trans"), checker)
    producer.startup()
    for number in range(5):
        assert producer.send(message("Normal", f"simple-{number}")).message_id
    told("simple", received("Normal", "Simple", 5))
    for number in range(3):
        producer.send(message("Normal", f"pushed-{number}"))
    listener = Listener(4 + 5, failing=("pushed-1",))
    told("pushed", sorted(one for one in pushed("Normal", "Pushed", listener) if "push" in one))
    for number in range(6):
        one = message("Fifo", f"ordered-{number}")
        one.message_group = "one"
        producer.send(one)
    told("ordered", pushed("Fifo", "Ordered", Listener(6)))
    late = message("Delay", "delayed")
    due = int(time.time()) + 2  # in seconds, though its documentation says ms
    late.delivery_timestamp = due
    producer.send(late)
    bodies = received("Delay", "Delayed", 1)
    told("delayed", [*bodies, time.time() >= due])
    for body, end in (("kept", "commit"), ("dropped", "rollback"), ("open", None)):
        transaction = producer.begin_transaction()
        producer.send(message("Trans", body), transaction)
        if end is not None:
            getattr(transaction, end)()
    told("transactions", received("Trans", "Paid", 2))
    told("checked", sorted(set(checker.asked)))
    producer.shutdown()


main()
