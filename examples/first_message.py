"""Send a message, then read it as a member of the group billing."""

import asyncio

from aerobee.client import Consumer, Message, Producer


async def main() -> None:
    async with Producer(group="shop") as producer:
        receipt = await producer.send(Message("orders", b"12 EUR", tags="paid", keys=["o-1"]))
        print("sent", receipt.msg_id)
    topics = {"orders": "paid || refunded"}
    async with Consumer(group="billing", topics=topics, start="earliest") as consumer:
        async for message in consumer:
            async with message.process():  # leaving acknowledges; raising brings it back later
                print("received", message.keys, message.body.decode())
            break


asyncio.run(main())
