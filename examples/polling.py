"""Your own loop decides when to read: `LitePullConsumer.poll`, then `commit`."""

import asyncio

from aerobee.client import LitePullConsumer, Message, Producer


async def main() -> None:
    async with Producer(group="shop") as producer:
        await producer.send(Message("orders", b"12 EUR", tags="paid"))
    consumer = LitePullConsumer(group="audit", start="earliest", auto_commit=False)
    async with consumer:
        await consumer.subscribe("orders", "paid")
        for message in await consumer.poll(timeout=15):
            print(message.queue_id, message.offset, message.body.decode())
        await consumer.commit()


asyncio.run(main())
