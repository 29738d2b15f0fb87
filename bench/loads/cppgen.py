"""The C++ binding as fast as it goes, for `scripts/bench --only client --cpp-python PATH`.

Runs in the Python of PATH, where `rocketmq-client-python` is installed and finds its librocketmq;
so it knows nothing of aerobee. The same work and the same line of JSON as clientgen. The binding
has no sends with a callback: threads send, each with one message under way.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from rocketmq.client import (
    ConsumeStatus,
    Message,
    Producer,
    PushConsumer,
)

BODY = "x" * 128


class Clock:
    """Counts messages and takes the time of those behind the first fifth."""

    def __init__(self, count: int) -> None:
        self.total = count + count // 5
        self.skip = self.total - count
        self.seen = 0
        self.done = threading.Event()
        self._lock = threading.Lock()
        self._began = self._cpu = 0.0

    def add(self) -> None:
        """One more."""
        with self._lock:
            self.seen += 1
            if self.seen == self.skip + 1:
                self._began, self._cpu = time.perf_counter(), time.process_time()
            if self.seen == self.total:
                self.report()
                self.done.set()

    def report(self) -> None:
        """Says how fast it was."""
        count = self.total - self.skip - 1
        seconds = time.perf_counter() - self._began
        cpu_us = (time.process_time() - self._cpu) / count * 1e6
        report = {"event": "rate", "count": count, "seconds": seconds, "cpu_us": cpu_us}
        print(json.dumps(report), flush=True)


def send(name_server: str, topic: str, clock: Clock, threads: int) -> None:
    """Send from a number of threads."""
    producer = Producer("ClientLoad")
    producer.set_name_server_address(name_server)
    producer.start()
    numbers, lock = iter(range(clock.total - 1)), threading.Lock()

    def send_one() -> None:
        message = Message(topic)
        message.set_body(BODY)
        producer.send_sync(message)
        clock.add()

    def work() -> None:
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
            try:
                send_one()
            except Exception as wrong:
                print(f"a send failed: {wrong}", file=sys.stderr, flush=True)
                os._exit(1)

    send_one()  # threads that look a route up at the same time get none

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    clock.done.wait()


def receive(name_server: str, topic: str, clock: Clock, group: str) -> None:
    """A push consumer, called for each message."""
    consumer = PushConsumer(group)
    consumer.set_name_server_address(name_server)

    def take(_: object) -> ConsumeStatus:
        clock.add()
        return ConsumeStatus.CONSUME_SUCCESS

    consumer.subscribe(topic, take)
    consumer.start()
    clock.done.wait()


def main() -> None:
    """Does what is asked for, and ends at once: closing takes the binding its time."""
    parser = argparse.ArgumentParser(prog="cppgen")
    parser.add_argument("--what", choices=("send", "receive"), required=True)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default="ClientLoad")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=256)
    words = parser.parse_args()
    clock = Clock(words.count)
    if words.what == "send":
        send(words.namesrv, words.topic, clock, words.in_flight)
    else:
        receive(words.namesrv, words.topic, clock, words.group)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
