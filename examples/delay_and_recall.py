"""Send a message that is delivered in two hours, and take it back before that."""

import asyncio
from datetime import timedelta

from aerobee.client import Message, Producer


async def main() -> None:
    async with Producer(group="shop") as producer:
        reminder = Message("reminders", b"your cart is waiting", delay=timedelta(hours=2))
        receipt = await producer.send(reminder)
        # The broker needs recallMessageEnable=true; `aerobee up` has it.
        msg_id = await producer.recall("reminders", receipt.recall_handle)
        print("took back", msg_id)


asyncio.run(main())
