"""Receive only messages whose properties fulfil a condition. The broker looks at it."""

import asyncio

from aerobee.client import Consumer, Message, Producer, by_sql


async def main() -> None:
    async with Producer(group="shop") as producer:
        for amount in (5, 12):
            body = f"{amount} EUR".encode()
            await producer.send(Message("orders", body, properties={"amount": str(amount)}))
    # The broker needs enablePropertyFilter=true; `aerobee up` has it.
    topics = {"orders": by_sql("amount > 10")}
    async with Consumer(group="large-orders", topics=topics, start="earliest") as consumer:
        async for message in consumer:
            async with message.process():
                print(message.body.decode())
            break


asyncio.run(main())
