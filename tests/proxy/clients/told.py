"""Programs with a client of RocketMQ 5 before our proxy and our broker, and what they find."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from aerobee.testing import LocalCluster

from ...waiting import PROCESS
from ..support import setup

EXAMPLES = Path(__file__).parents[3] / "examples" / "grpc"
TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Trans": "TRANSACTION"}
# By group, the topic that it reads.
GROUPS = {
    "Simple": "Normal",
    "Pushed": "Normal",
    "Ordered": "Fifo",
    "Delayed": "Delay",
    "Paid": "Trans",
}
CHECKS: dict[str, Any] = {
    "transaction_check_interval": 1_000,
    "transaction_time_out": 1_000,
    "transaction_check_max": 100,
}
PRINTED = ["sent", "received 12 EUR"]  # by an example
# What each program finds, by part: bodies, each with the number of its delivery. One fails once.
FOUND: dict[str, list[Any]] = {
    "simple": [f"simple-{number}#1" for number in range(5)],
    "pushed": ["pushed-0#1", "pushed-1#1", "pushed-1#2", "pushed-2#1"],
    "ordered": [f"ordered-{number}#1" for number in range(6)],
    "delayed": ["delayed#1", True],
    "transactions": ["kept#1", "open#1"],
    "checked": ["open"],
}


def check_deliveries(found: dict[str, Any], wanted: dict[str, list[Any]]) -> None:
    """Each wanted delivery took place, and no other message was there; one that a program was too
    slow to acknowledge may have come again."""
    assert found.keys() == wanted.keys()
    for part, deliveries in wanted.items():
        assert set(found[part]) >= set(deliveries), part
        assert _bodies(found[part]) == _bodies(deliveries), part


def _bodies(deliveries: list[Any]) -> list[str]:
    """Each body once, in order."""
    return list(dict.fromkeys(str(one).partition("#")[0] for one in deliveries))


async def told_by(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What a program prints, by part; its last argument is the proxy's address."""
    with LocalCluster(**CHECKS) as cluster:
        async with setup(cluster) as proxied:
            for topic, kind in TOPICS.items():
                await proxied.create(topic, kind)
            for group, topic in GROUPS.items():
                await proxied.create_group(group, consume_message_orderly=group == "Ordered")
                await proxied.ready(proxied.client(), topic, group)
            out = await _output(words, environment, proxied.proxy.port)
            lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"part')]
            return {line["part"]: line["found"] for line in lines}


async def printed_by_example(words: list[str], environment: dict[str, str]) -> list[str]:
    """The lines of an example, with its topic and its group; the id that it sent is cut off."""
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            await proxied.create("orders", "NORMAL")
            await proxied.create_group("billing")
            out = await _output(words, environment, proxied.proxy.port)
            known = ("sent", "received")
            lines = [line for line in out.splitlines() if line.startswith(known)]
            return [line if line.startswith("received") else line.split()[0] for line in lines]


async def _output(words: list[str], environment: dict[str, str], port: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        f"127.0.0.1:{port}",
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROCESS):
            out, said = await process.communicate()
    except TimeoutError:
        process.kill()
        out, said = await process.communicate()
    assert process.returncode == 0, (out.decode()[-2_000:], said.decode()[-2_000:])
    return out.decode()
