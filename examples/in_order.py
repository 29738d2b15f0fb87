"""Messages of one order stay in order: one queue for each sharding key, one message at a time."""

import asyncio

from aerobee.client import Consumer, Message, Producer

STEPS = ["created", "paid", "sent"]


async def main() -> None:
    async with Producer(group="shop") as producer:
        for step in STEPS:
            await producer.send(Message("steps", step.encode(), keys=["o-1"]), sharding_key="o-1")
    consumer = Consumer(group="billing", topics=["steps"], ordered=True, start="earliest")
    left = len(STEPS)
    async with consumer:
        async for message in consumer:
            async with message.process():
                print(message.keys[0], message.body.decode())
            left -= 1
            if not left:
                break


asyncio.run(main())
