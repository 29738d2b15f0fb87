"""A service: a listener is called for up to 20 messages at once, until Ctrl-C or SIGTERM."""

import asyncio

from aerobee.client import Consumer, ReceivedMessage

consumer = Consumer(group="billing", topics=["orders"], start="earliest")


@consumer.listener(concurrency=20)
async def bill(message: ReceivedMessage) -> None:
    # Returning acknowledges the message. Raising brings it back, 10 s later at first.
    print("billed", message.body.decode(), flush=True)


asyncio.run(consumer.run())
