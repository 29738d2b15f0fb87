"""Load generator that drives our client at full speed, for `scripts/bench --only client`.

One process prints one report. `--client` is `asyncio`, `uvloop` (asyncio on that loop) or
`blocking`. `--what` is `send` (128-byte messages, `--in-flight` of them pending), `receive`
(delivery to a listener in batches) or `idle` (a consumer that waits). A warm-up of a fifth comes
first. The report is a line of JSON: number of messages, seconds, processor time per message in us.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Sequence

from ...client import (
    Consumer,
    Message,
    Producer,
    blocking,
)
from ...client.group.received import ReceivedMessage
from ...scripts.serving import loop_factory

BODY = b"x" * 128
BATCH = 32  # messages per call of the listener
WARM_UP = 5  # the warm-up is one WARM_UPth of the messages


class Clock:
    """Counts messages and measures the time of those after the first `skip`."""

    def __init__(self, count: int) -> None:
        self.total = count + count // WARM_UP
        self.skip = self.total - count
        self.seen = 0
        self._from = -1  # position of the first measured message
        self._began = self._cpu = 0.0

    def add(self, count: int) -> bool:
        """Add `count` messages; True for the last one."""
        self.seen += count
        if self._from < 0 and self.seen > self.skip:
            self._from = self.seen
            self._began, self._cpu = time.perf_counter(), time.process_time()
        return self.seen >= self.total

    def report(self) -> dict[str, object]:
        """The report."""
        count, seconds = self.seen - self._from, time.perf_counter() - self._began
        cpu_us = (time.process_time() - self._cpu) / count * 1e6
        return {"event": "rate", "count": count, "seconds": seconds, "cpu_us": cpu_us}


async def send(name_server: str, topic: str, clock: Clock, in_flight: int) -> None:
    """Send from `in_flight` tasks, each with one pending message."""
    async with Producer(name_server, group="ClientLoad") as producer:
        left = clock.total

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send(Message(topic, BODY))
                clock.add(1)

        await asyncio.gather(*(work() for _ in range(in_flight)))


def send_blocking(name_server: str, topic: str, clock: Clock, in_flight: int) -> None:
    """Send from `in_flight` threads, each with one pending message."""
    numbers, lock = iter(range(clock.total)), threading.Lock()
    with blocking.Producer(name_server, group="ClientLoad") as producer:

        def work() -> None:
            while True:
                with lock:
                    if next(numbers, None) is None:
                        return
                producer.send(Message(topic, BODY))
                with lock:
                    clock.add(1)

        threads = [threading.Thread(target=work) for _ in range(in_flight)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def receive(name_server: str, topic: str, clock: Clock, group: str) -> None:
    """Receive with a listener, in batches."""
    done = asyncio.Event()
    consumer = Consumer(name_server, group=group, topics=[topic], start="earliest")

    @consumer.listener(batch_max=BATCH)
    async def take(messages: list[ReceivedMessage], _: object) -> None:
        if clock.add(len(messages)):
            done.set()

    running = asyncio.create_task(consumer.run())
    await done.wait()
    print(json.dumps(clock.report()), flush=True)
    await consumer.close()
    await running


def receive_blocking(name_server: str, topic: str, clock: Clock, group: str) -> None:
    """Receive with the blocking consumer."""
    done, lock = threading.Event(), threading.Lock()

    def take(messages: list[ReceivedMessage], _: object) -> None:
        with lock:
            if clock.add(len(messages)):
                done.set()

    with blocking.Consumer(
        name_server, group=group, topics=[topic], start="earliest", listener=take, batch_max=BATCH
    ):
        done.wait()
        print(json.dumps(clock.report()), flush=True)


async def idle(name_server: str, topic: str, group: str) -> None:
    """Run an idle consumer until standard input ends."""
    has_queues = asyncio.Event()
    consumer = Consumer(
        name_server,
        group=group,
        topics=[topic],
        start="latest",
        on_queues=lambda *_: has_queues.set(),
    )
    async with consumer:
        await has_queues.wait()
        print(json.dumps({"event": "idle"}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested load."""
    parser = argparse.ArgumentParser(prog="clientgen")
    parser.add_argument("--client", choices=("asyncio", "uvloop", "blocking"), default="asyncio")
    parser.add_argument("--what", choices=("send", "receive", "idle"), required=True)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default="ClientLoad")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=256)
    words = parser.parse_args(argv)
    clock = Clock(words.count)
    where = (words.namesrv, words.topic)
    if words.what == "send" and words.client == "blocking":
        send_blocking(*where, clock, words.in_flight)
        print(json.dumps(clock.report()), flush=True)
    elif words.what == "receive" and words.client == "blocking":
        receive_blocking(*where, clock, words.group)
    else:
        work = {
            "send": lambda: send(*where, clock, words.in_flight),
            "receive": lambda: receive(*where, clock, words.group),
            "idle": lambda: idle(*where, words.group),
        }[words.what]()
        factory = loop_factory() if words.client == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work)
        if words.what == "send":
            print(json.dumps(clock.report()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
