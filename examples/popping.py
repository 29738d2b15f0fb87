"""Take messages for a minute at a time: each comes again unless it is acknowledged."""

import asyncio

from aerobee.client import Message, Producer, SimpleConsumer


async def main() -> None:
    async with Producer(group="shop") as producer:
        await producer.send(Message("mails", b"to: a@example.org"))
    async with SimpleConsumer(group="mailer", topics=["mails"], start="earliest") as consumer:
        for message in await consumer.receive(max_messages=16, invisible=60, timeout=15):
            print(message.body.decode())
            await message.ack()


asyncio.run(main())
