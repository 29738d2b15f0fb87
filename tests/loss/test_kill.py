"""kill -9 at random moments under eight producers, and what the ledger says afterwards.

`AEROBEE_KILLS` is the number of kills (in each flush mode half of them), `AEROBEE_KILLS_SEED` the
seed of the moments.
"""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.record import decode_all
from aerobee.scripts.harness.child import Child

from .ledger import Ledger, Queue

KILLS = int(os.environ.get("AEROBEE_KILLS", "20"))
SEED = os.environ.get("AEROBEE_KILLS_SEED", "1")
PRODUCERS = 8
QUEUES = 4
TOPIC = "T"
SECONDS = 300  # a deadline, for a machine that has much else to do
ACKNOWLEDGED_MAX = 800  # before a kill
COMMAND = [sys.executable, "-m", "aerobee.scripts.cli", "up"]
# So small that logs, queues and index roll over between two kills.
SETTINGS = {
    "httpPort": "0",
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "flushIntervalCommitLog": "50",
    "flushConsumerOffsetInterval": "100",
    "syncFlushTimeout": str(SECONDS * 1000),
}


class Load:
    """Eight producers and a reader at one broker after the other, and the ledger of it all."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.number = 0
        self.acknowledged = 0
        self.enough = asyncio.Event()
        self.wanted = 0
        self.offsets = dict.fromkeys(range(QUEUES), 0)  # where the reader goes on

    async def until(self, address: str, acknowledged: int, kill: Child) -> None:
        """Work until so many messages were acknowledged, then kill the broker."""
        self.wanted = self.acknowledged + acknowledged
        self.enough.clear()
        peers = [Peers(upgrade=False) for _ in range(PRODUCERS + 1)]
        tasks = [
            asyncio.create_task(self._produce(peers[n], address, n % QUEUES))
            for n in range(PRODUCERS)
        ]
        tasks.append(asyncio.create_task(self._read(peers[-1], address)))
        enough = asyncio.create_task(self.enough.wait())
        await asyncio.wait((enough, *tasks), timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert self.enough.is_set(), "a producer or the reader has stopped before the kill"
        kill.process.kill()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*tasks)
        for one in peers:
            await one.close()
        self.ledger.crashed()

    async def read_all(self, address: str) -> None:
        """Everything that the broker has."""
        peers = Peers(upgrade=False)
        queues = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        for queue in queues:
            fields = {"topic": TOPIC, "queueId": str(queue[1])}
            answer = await peers.request(address, codes.GET_MAX_OFFSET, fields, b"", SECONDS)
            end = int(answer.fields()["offset"])
            offset = 0
            while offset < end:
                offset = await self._pull(peers, address, queue, offset)
            self.ledger.read_all(queue, 0, end)
            fields |= {"consumerGroup": "g"}
            answer = await peers.request(address, codes.QUERY_CONSUMER_OFFSET, fields, b"", SECONDS)
            if answer.code == 0:
                self.offsets[queue[1]] = int(answer.fields()["offset"])
                self.ledger.restored("g", queue, self.offsets[queue[1]])
        self.ledger.recovered(queues)
        await peers.close()

    async def _produce(self, peers: Peers, address: str, queue_id: int) -> None:
        queue = TOPIC, queue_id
        with suppress(OSError):  # the broker is gone
            while True:
                self.number += 1
                body = (b"%08d " % self.number).ljust(20 + self.number * 37 % 400, b".")
                self.ledger.sent(body, queue)
                answer = await self._send(peers, address, queue_id, body)
                assert answer.code == codes.SUCCESS, answer.remark
                self.ledger.acknowledged(body, int(answer.fields()["queueOffset"]))
                self.acknowledged += 1
                if self.acknowledged >= self.wanted:
                    self.enough.set()

    async def _send(self, peers: Peers, address: str, queue_id: int, body: bytes) -> Command:
        properties = f"KEYS\x01{body[:8].decode()}\x02"
        header = SendMessage("pg", TOPIC, "TBW102", QUEUES, queue_id, 0, 1, 0, properties, 0)
        return await peers.request(address, codes.SEND_MESSAGE_V2, header, body, SECONDS)

    async def _read(self, peers: Peers, address: str) -> None:
        """Reads on and commits; what it has seen must stay."""
        with suppress(OSError):
            while True:
                for queue_id, offset in self.offsets.items():
                    behind = await self._pull(peers, address, (TOPIC, queue_id), offset)
                    self.offsets[queue_id] = behind
                    fields = {
                        "topic": TOPIC,
                        "queueId": str(queue_id),
                        "consumerGroup": "g",
                        "commitOffset": str(behind),
                    }
                    await peers.request(address, codes.UPDATE_CONSUMER_OFFSET, fields, b"", SECONDS)

    async def _pull(self, peers: Peers, address: str, queue: Queue, offset: int) -> int:
        header = PullMessage("g", TOPIC, queue[1], offset, 32, SUBSCRIPTION, 0, 0, 0, "*")
        answer = await peers.request(address, codes.PULL_MESSAGE, header, b"", SECONDS)
        for record in decode_all(answer.body or b"") if answer.code == codes.SUCCESS else []:
            body = record.body if record.is_body_intact else b"damaged"
            self.ledger.delivered(queue, record.queue_offset, body)
        if answer.code == codes.TOPIC_NOT_EXIST:
            return 0
        return int(answer.fields()["nextBeginOffset"])


@contextmanager
def broker(folder: Path, number: int, mode: str) -> Iterator[tuple[Child, str]]:
    """A broker in a process of its own, and its address."""
    words = [*COMMAND, "--namesrv-port", "0", "--listen-port", "0", "--store", str(folder / "s")]
    for key, value in (SETTINGS | {"flushDiskType": mode}).items():
        words += ["--set", f"{key}={value}"]
    environment = {name: "" for name in os.environ if name.startswith("AEROBEE_")}
    with Child(words, folder / f"{number}.stderr", cwd=folder, env=environment) as child:
        ready = child.wait_line(lambda line: "ready" in line, SECONDS)
        found = re.search(r"broker (127\.0\.0\.1:\d+) \(clients", ready)
        assert found is not None, ready
        yield child, found[1]


@pytest.mark.requirement("Store: Async flush: a kill loses nothing")
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_nothing_acknowledged_or_read_is_lost_by_kills(mode: str, tmp_path: Path) -> None:
    draw = Random(f"{SEED} {mode}")
    load = Load()
    kills = max(1, KILLS // 2)
    for number in range(kills + 1):
        with broker(tmp_path, number, mode) as (child, address):
            if number:
                await load.read_all(address)
                load.ledger.check()
            if number < kills:
                await load.until(address, draw.randrange(1, ACKNOWLEDGED_MAX), child)
            else:
                assert child.stop() == 0
        said = (tmp_path / f"{number}.stderr").read_text()
        assert "Traceback" not in said, said
    assert load.acknowledged > 50 * kills
