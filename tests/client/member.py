"""A group member in its own process, so that a test can kill it.

It prints a line of JSON for each message before settling it. "drain" or "close" on standard input
makes it leave its group by that call. Arguments: name server, group, topic, client id, "ordered" or
"concurrent".
"""

import asyncio
import json
import random
import sys
import time

from aerobee.client import Consumer
from aerobee.client.errors import NoAnswerError, UnreachableError

TASKS = 4
WORK_SECONDS_MAX = 0.004
START_SECONDS_MAX = 60.0  # a machine that is busy with other work may have no answer in time


async def work(consumer: Consumer) -> None:
    """Consumes one message after the other."""
    async for message in consumer:
        async with message.process():
            report = {
                "event": "message",
                "queue": message.queue_id,
                "offset": message.offset,
                "body": message.body.decode(),
                "at": time.monotonic(),  # the same clock in all processes of a machine
            }
            print(json.dumps(report), flush=True)
            await asyncio.sleep(random.random() * WORK_SECONDS_MAX)


async def join() -> Consumer:
    """A consumer that has started; a start that failed closes it, so each try makes a new one."""
    name_server, group, topic, client_id, kind = sys.argv[1:]
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        consumer = Consumer(
            name_server,
            group=group,
            topics=[topic],
            start="earliest",
            client_id=client_id,
            ordered=kind == "ordered",
        )
        try:
            await consumer.start()
        except (NoAnswerError, UnreachableError) as wrong:
            print(f"joining again: {wrong}", file=sys.stderr)
            if time.monotonic() > deadline:
                raise
        else:
            return consumer


async def main() -> None:
    """Consumes until it is told to leave."""
    consumer = await join()
    tasks = [asyncio.create_task(work(consumer)) for _ in range(TASKS)]
    print(json.dumps({"event": "started"}), flush=True)
    order = await asyncio.to_thread(sys.stdin.readline)
    if order.strip() == "drain":
        await consumer.drain(10)
    else:
        await consumer.close()
    await asyncio.gather(*tasks)
    print(json.dumps({"event": "stopped"}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
