"""Ask for a price and wait for the answer that a consumer sends."""

import asyncio

from aerobee.client import Admin, Consumer, Message, Producer


async def answer(consumer: Consumer, producer: Producer) -> None:
    async for request in consumer:
        async with request.process():
            await producer.reply(request, b"12.50")


async def main() -> None:
    async with Admin() as admin:
        await admin.create_topic("prices")  # so that the consumer knows it before the first request
    consumer = Consumer(group="pricing", topics=["prices"])
    async with consumer, Producer(group="shop") as producer:
        answering = asyncio.create_task(answer(consumer, producer))
        reply = await producer.request(Message("prices", b"o-1"), timeout=10)
        print("the price is", reply.body.decode())
        answering.cancel()


asyncio.run(main())
