"""A program that consumes until a signal stops it and reports each message when it is done.

A handler waits for the line "go" on standard input, so that a test decides when it returns.
Arguments: name server, "asyncio", "blocking", or "others" for a program with its own SIGTERM
handler.
"""

import asyncio
import json
import signal
import sys
import threading
import time

from aerobee.client import Consumer, blocking
from aerobee.client.base.message_view import MessageView

go = threading.Event()
saying = threading.Lock()


def say(event: str, **more: object) -> None:
    with saying:
        print(json.dumps({"event": event, **more}), flush=True)


def work(message: MessageView) -> None:
    """An ordinary function, which runs in a thread."""
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.001)  # until `run` waits for signals
    say("begun", body=message.body.decode())
    go.wait()
    say("done", body=message.body.decode())


def listen_for_orders() -> None:
    for line in sys.stdin:
        if line.strip() == "go":
            go.set()


def main() -> None:
    name_server, kind = sys.argv[1:]
    threading.Thread(target=listen_for_orders, daemon=True).start()
    if kind == "blocking":
        with blocking.Consumer(
            name_server,
            group="g",
            topics=["orders"],
            start="earliest",
            listener=work,
            concurrency=2,
        ) as consumer:
            say("started")
            consumer.run()
        say("stopped")
        return
    asyncio.run(on_a_loop(name_server, kind))
    say("stopped")


async def on_a_loop(name_server: str, kind: str) -> None:
    service = Consumer(name_server, group="g", topics=["orders"], start="earliest")
    service.listener(concurrency=2)(work)
    if kind == "others":
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        running = asyncio.create_task(service.run())
        say("started")
        await told.wait()
        say("own handler")
        go.set()
        await service.drain()
        await running
        return
    say("started")
    other = Consumer(name_server, group="other", topics=["others"])
    other.listener(concurrency=1)(work)
    await asyncio.gather(service.run(), other.run())  # a signal stops all of them


if __name__ == "__main__":
    main()
