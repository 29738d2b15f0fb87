"""Topics with messages on our own broker, for consumers to read."""

from aerobee.client import Admin, Message, MessageQueue, Producer


async def filled(address: str, count: int, queues: int = 1) -> MessageQueue:
    """The first queue of a topic "orders" with so many messages, of tags a and b in turn."""
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", queues)
        found = await producer.queues("orders")
        for number in range(count):
            message = Message("orders", b"%d" % number, tags="ab"[number % 2])
            await producer.send(message, queue=found[number % queues])
        return found[0]
