"""Producers and a reader at brokers that are killed, and the ledger of what they were told."""

import asyncio
import os
from contextlib import suppress

from aerobee.harness.child import Child
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.record import decode_all

from ..waiting import PROCESS
from .ledger import Ledger, Queue

SEED = os.environ.get("AEROBEE_KILLS_SEED", "1")
PRODUCERS = 8
QUEUES = 4
TOPIC = "T"


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
        """Work until this many messages were acknowledged, then kill the broker."""
        self.wanted = self.acknowledged + acknowledged
        self.enough.clear()
        peers = [Peers() for _ in range(PRODUCERS + 1)]
        tasks = [
            asyncio.create_task(self._produce(peers[n], address, n % QUEUES))
            for n in range(PRODUCERS)
        ]
        tasks.append(asyncio.create_task(self._read(peers[-1], address)))
        enough = asyncio.create_task(self.enough.wait())
        await asyncio.wait((enough, *tasks), timeout=PROCESS, return_when=asyncio.FIRST_COMPLETED)
        assert self.enough.is_set(), "a producer or the reader has stopped before the kill"
        kill.process.kill()
        async with asyncio.timeout(PROCESS):
            await asyncio.gather(*tasks)
        for one in peers:
            await one.close()
        self.ledger.crashed()

    async def read_all(self, address: str) -> None:
        """Everything that the broker has."""
        peers = Peers()
        queues = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        for queue in queues:
            fields = {"topic": TOPIC, "queueId": str(queue[1])}
            answer = await peers.request(address, codes.GET_MAX_OFFSET, fields, b"", PROCESS)
            end = int(answer.fields()["offset"])
            offset = 0
            while offset < end:
                offset = await self._pull(peers, address, queue, offset)
            self.ledger.read_all(queue, 0, end)
            fields |= {"consumerGroup": "g"}
            answer = await peers.request(address, codes.QUERY_CONSUMER_OFFSET, fields, b"", PROCESS)
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
        return await peers.request(address, codes.SEND_MESSAGE_V2, header, body, PROCESS)

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
                    await peers.request(address, codes.UPDATE_CONSUMER_OFFSET, fields, b"", PROCESS)

    async def _pull(self, peers: Peers, address: str, queue: Queue, offset: int) -> int:
        header = PullMessage("g", TOPIC, queue[1], offset, 32, SUBSCRIPTION, 0, 0, 0, "*")
        answer = await peers.request(address, codes.PULL_MESSAGE, header, b"", PROCESS)
        for record in decode_all(answer.body or b"") if answer.code == codes.SUCCESS else []:
            body = record.body if record.is_body_intact else b"damaged"
            self.ledger.delivered(queue, record.queue_offset, body)
        if answer.code == codes.TOPIC_NOT_EXIST:
            return 0
        return int(answer.fields()["nextBeginOffset"])
