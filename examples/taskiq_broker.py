"""Tasks of taskiq through aerobee: a task is a message, acknowledged when it is done.

When a worker dies, another one gets its task after INVISIBLE_SECONDS. So a task must end within
that time, and may run twice. Workers by themselves: `taskiq worker taskiq_broker:broker`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator

from aerobee.client import Message, Producer, SimpleConsumer
from taskiq import AckableMessage, AsyncBroker, BrokerMessage
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend

INVISIBLE_SECONDS = 60


class AerobeeBroker(AsyncBroker):
    """Tasks in a topic, taken by the workers of a group."""

    def __init__(self, topic: str, group: str) -> None:
        super().__init__()
        self._topic, self._group = topic, group
        self._producer = Producer(group=f"{group}-callers")

    async def startup(self) -> None:
        await super().startup()
        await self._producer.start()

    async def shutdown(self) -> None:
        await self._producer.close()
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        await self._producer.send(Message(self._topic, message.message))

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        async with SimpleConsumer(
            group=self._group, topics=[self._topic], start="earliest"
        ) as consumer:
            while True:
                for message in await consumer.receive(
                    max_messages=1, invisible=INVISIBLE_SECONDS, timeout=15
                ):
                    yield AckableMessage(data=message.body, ack=message.ack)


broker = AerobeeBroker("tasks", "workers")
broker.with_result_backend(InmemoryResultBackend())  # results stay in this process


@broker.task
async def bill(amount: str) -> str:
    return f"billed {amount}"


async def main() -> None:
    await broker.startup()
    task = await bill.kiq("12 EUR")  # the first one makes the topic
    worker = asyncio.create_task(run_receiver_task(broker))
    result = await task.wait_result(timeout=60)
    print(result.return_value)
    logging.getLogger("taskiq").setLevel(logging.ERROR)  # it warns of the end of its worker
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
