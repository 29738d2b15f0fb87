"""A user's program with each public class of the client. Only type-checked, never run."""

import asyncio
import contextlib
from datetime import timedelta

from aerobee.client import (
    Admin,
    BatchReceipt,
    Consumer,
    ConsumeSettings,
    Context,
    Limits,
    LitePullConsumer,
    LitePullSettings,
    Message,
    MessageQueue,
    MessageView,
    Outcome,
    PoppedMessage,
    PopSettings,
    Producer,
    PullConsumer,
    PullSettings,
    ReceivedMessage,
    Security,
    SendReceipt,
    SendStatus,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    blocking,
    by_sql,
    by_tag,
    errors,
)


def check(message: MessageView) -> TransactionState:
    """How the local transaction ended."""
    return TransactionState.COMMIT if message.keys else TransactionState.ROLLBACK


async def send(security: Security) -> None:
    """Sends of all kinds."""
    async with Producer(group="shop", security=security, tries=2) as producer:
        delayed = Message("orders", b"x", delay=timedelta(hours=1), properties={"a": "b"})
        receipt: SendReceipt = await producer.send(delayed)
        if receipt.status is SendStatus.OK:
            await producer.recall("orders", receipt.recall_handle)
        batch: BatchReceipt = await producer.send_batch([delayed])
        print(batch.msg_ids)
        queue: MessageQueue = (await producer.queues("orders"))[0]
        await producer.send(delayed, queue=queue)
        reply: MessageView = await producer.request(delayed)
        print(reply.properties["a"], reply.system_properties, reply.sharding_key)
        with contextlib.suppress(errors.RequesterGoneError):
            await producer.reply(reply, b"yes")
        try:
            await producer.send_batch([delayed])
        except errors.BatchError as wrong:
            await producer.send_batch(wrong.unsent)
    async with (
        TransactionProducer(group="shop", check=check) as transactions,
        transactions.transaction(Message("orders", b"x")) as sent,
    ):
        print(sent.transaction_id)


async def consume() -> None:
    """Consumers of all kinds."""
    consumer = Consumer(
        group="g",
        topics={"orders": by_tag("a || b"), "bills": by_sql("amount > 10")},
        limits=Limits(messages_max=10),
        pull=PullSettings(batch=8),
        consume=ConsumeSettings(timeout_s=60),
        pop=PopSettings(batch=8),
    )

    @consumer.listener(batch_max=10)
    async def work(messages: list[ReceivedMessage], context: Context) -> Outcome:
        context.delay_level = 3
        return Outcome.SUCCESS if messages else Outcome.LATER

    await consumer.run(handle_signals=True, drain_timeout=25)
    async with SimpleConsumer(group="g", topics=["orders"]) as simple:
        popped: list[PoppedMessage] = await simple.receive()
        await popped[0].ack()
    async with LitePullConsumer(group="g", pull=LitePullSettings(batch=8)) as lite:
        await lite.subscribe("orders")
        polled: list[MessageView] = await lite.poll()
        print(polled)
    async with PullConsumer(group="g") as pulls:
        for queue in await pulls.queues("orders"):
            print((await pulls.pull(queue, 0)).messages)


async def administer() -> None:
    """Topics and permissions."""
    async with Admin() as admin:
        await admin.create_topic("orders", 4)
        await admin.allow("shop", ["Topic:orders"], ["Pub"])
        print(await admin.permissions("shop"), await admin.users())
        await admin.disallow("shop", "Topic:orders")


def without_a_loop() -> None:
    """The same for threads."""

    def work(message: MessageView) -> None:
        print(message.body)

    with blocking.Producer(group="shop") as producer:
        receipt = producer.send(Message("orders", b"x"))
        producer.recall("orders", receipt.recall_handle)
    with blocking.Consumer(group="g", topics=["orders"], listener=work) as consumer:
        consumer.run(drain_timeout=25)


if __name__ == "__main__":
    asyncio.run(send(Security("key", "secret")))
    asyncio.run(consume())
    asyncio.run(administer())
    without_a_loop()
