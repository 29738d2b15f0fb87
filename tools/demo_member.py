"""A member of the demo's consumer group, in a process of its own.

    python -m aerobee.tools.demo_member NAME_SERVER GROUP TOPIC

Reports on standard output, as JSON, the queues it holds and the offsets it has acknowledged, until
its standard input ends; then it leaves the group and reports once more.
"""

import asyncio
import json
import sys
from typing import Any

from ..client import Consumer

REPORT_SECONDS = 0.25

Ranges = list[list[int]]  # first and last offset of each, both there


class Seen:
    """The offsets seen of each queue, as ranges in the order they came."""

    def __init__(self) -> None:
        self.queues: dict[str, Ranges] = {}

    def add(self, queue: str, offset: int) -> None:
        """Note one offset."""
        ranges = self.queues.setdefault(queue, [])
        if ranges and ranges[-1][1] + 1 == offset:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])


def count_once(ranges: Ranges) -> int:
    """How many different offsets these ranges hold; they may overlap."""
    total, end = 0, -1
    for first, last in sorted(ranges):
        total += max(0, last - max(first, end + 1) + 1)
        end = max(end, last)
    return total


async def consume(name_server: str, group: str, topic: str) -> None:
    """Be a member until standard input ends."""
    seen = Seen()

    async def read(consumer: Consumer) -> None:
        async for message in consumer:
            async with message.process():
                seen.add(f"{message.queue.broker_name}:{message.queue_id}", message.offset)

    async def report(consumer: Consumer) -> None:
        while True:
            _say(event="seen", holds=len(consumer.queues), queues=seen.queues)
            await asyncio.sleep(REPORT_SECONDS)

    async with Consumer(name_server, group=group, topics=[topic], start="earliest") as consumer:
        tasks = [asyncio.create_task(work(consumer)) for work in (read, report)]
        input_ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        done, _ = await asyncio.wait([*tasks, input_ended], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                task.result()  # it only ends by an error
            task.cancel()
    _say(event="left", holds=0, queues=seen.queues)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    asyncio.run(consume(*sys.argv[1:]))
