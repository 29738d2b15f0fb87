"""Topics with messages on an aerobee broker, for the tests of consumers."""

from aerobee.client import Admin, Message, MessageQueue, Producer


async def filled(address: str, count: int, queues: int = 1) -> MessageQueue:
    """Create the topic "orders" with `count` messages, tagged a and b; return its first queue."""
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", queues)
        found = await producer.queues("orders")
        for number in range(count):
            message = Message("orders", b"%d" % number, tags="ab"[number % 2])
            await producer.send(message, queue=found[number % queues])
        return found[0]
