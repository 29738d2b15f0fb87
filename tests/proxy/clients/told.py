"""A program with a client of RocketMQ 5 before our proxy and our broker, and what it finds."""

import asyncio
import json
import os
import subprocess
from typing import Any

from aerobee.testing import LocalCluster

from ..support import setup

SECONDS = 240
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
# What each program finds, by part: bodies with the number of their delivery. One fails once.
FOUND = {
    "simple": [f"simple-{number}#1" for number in range(5)],
    "pushed": ["pushed-0#1", "pushed-1#1", "pushed-1#2", "pushed-2#1"],
    "ordered": [f"ordered-{number}#1" for number in range(6)],
    "delayed": ["delayed#1", True],
    "transactions": ["kept#1", "open#1"],
    "checked": ["open"],
}


async def told_by(words: list[str], environment: dict[str, str]) -> dict[str, object]:
    """What a program prints, by part; its last argument is the proxy's address."""
    with LocalCluster(**CHECKS) as cluster:
        async with setup(cluster) as proxied:
            for topic, kind in TOPICS.items():
                await proxied.create(topic, kind)
            for group, topic in GROUPS.items():
                await proxied.create_group(group, consume_message_orderly=group == "Ordered")
                await proxied.ready(proxied.client(), topic, group)
            process = await asyncio.create_subprocess_exec(
                *(*words, f"127.0.0.1:{proxied.proxy.port}"),
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(SECONDS):
                    out, said = await process.communicate()
            except TimeoutError:
                process.kill()
                out, said = await process.communicate()
            lines = [json.loads(line) for line in out.splitlines() if line.startswith(b'{"part')]
            assert process.returncode == 0, (lines, said.decode()[-2_000:])
            return {line["part"]: line["found"] for line in lines}
