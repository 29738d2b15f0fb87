"""rocketmq-python-client in one process with our broker and our proxy: what it receives.

Both have the definitions of RocketMQ's gRPC messages, which must not clash.
"""

# mypy: ignore-errors
# The client is in a folder of its own, and another package of its name may be in ours.

import asyncio
import threading
import time

from aerobee.client import Admin
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.testing import LocalCluster
from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

TOPIC, GROUP, SECONDS = "orders", "billing", 60
LARGE = bytes(range(256)) * (4 << 12)  # 4 MiB, the most that a proxy takes


async def serve(cluster: LocalCluster, ready: list, is_over: threading.Event) -> None:
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic(TOPIC, 1, attributes={"message.type": "NORMAL"})
    proxy = Proxy(ProxyConfig(namesrv_addr=cluster.name_server, grpc_server_port=0))
    await proxy.start()
    ready.append(proxy.port)
    await asyncio.to_thread(is_over.wait)
    await proxy.stop()


def use(port: int) -> None:
    configuration = ClientConfiguration(f"127.0.0.1:{port}", Credentials())
    producer = Producer(configuration, [TOPIC])
    producer.startup()
    for body in (b"12 EUR", LARGE):
        message = Message()
        message.topic, message.body = TOPIC, body
        producer.send(message)
    producer.shutdown()
    subscription = {TOPIC: FilterExpression()}
    consumer = SimpleConsumer(configuration, GROUP, subscription, await_duration=5)
    consumer.startup()
    found, end = [], time.monotonic() + SECONDS
    while len(found) < 2 and time.monotonic() < end:
        for each in consumer.receive(16, 30):
            found.append(each.body)
            consumer.ack(each)
    consumer.shutdown()
    print("received", found == [b"12 EUR", LARGE], len(found), flush=True)


def main() -> None:
    with LocalCluster() as cluster:
        ready: list[int] = []
        is_over = threading.Event()
        serving = threading.Thread(target=lambda: asyncio.run(serve(cluster, ready, is_over)))
        serving.start()
        while not ready and serving.is_alive():
            time.sleep(0.01)
        try:
            use(ready[0])
        finally:
            is_over.set()
            serving.join()


main()
