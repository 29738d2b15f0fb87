"""Send 1,000 messages at once: `send_soon` begins each, `gather` waits for all receipts."""

import asyncio

from aerobee.client import Message, Producer


async def main() -> None:
    messages = [Message("orders", f"order {number}".encode()) for number in range(1_000)]
    async with Producer(group="shop") as producer:
        receipts = await asyncio.gather(*map(producer.send_soon, messages))
    print(f"{len(receipts)} messages are stored")


asyncio.run(main())
