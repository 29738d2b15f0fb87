"""Transactions as fast as they go: half messages, each committed as soon as it is accepted.

Each connection has a given number of transactions under way. One begins with the send of its half
message and ends with the answer to its commit; the next begins in the same write. It is a simple
reader of frames, like popgen.
"""

from __future__ import annotations

import json
import time

from .frames import Result, Wire, drive, frame, report
from .loadgen import Load

SEND_MESSAGE_V2, END_TRANSACTION = 310, 37
COMMIT = 8
GROUP = "TransactionLoad"
ENDS = 1 << 20  # added to the number of a transaction when it ends
HALF = (
    f'{{"code":{SEND_MESSAGE_V2},"extFields":{{"a":"{GROUP}","b":"%s","c":"TBW102","d":"4",'
    '"e":"%d","f":"4","g":"%d","h":"0","i":"TRAN_MSG\\u0001true\\u0002PGROUP\\u0001'
    f'{GROUP}\\u0002UNIQ_KEY\\u0001%s\\u0002WAIT\\u0001true","j":"0","k":"false","m":"false"}}'
)
END = (
    f'{{"code":{END_TRANSACTION},"extFields":{{"topic":"%s","producerGroup":"{GROUP}",'
    f'"tranStateTableOffset":"%s","commitLogOffset":"%d","commitOrRollback":"{COMMIT}",'
    '"fromTransactionCheck":"false","msgId":"%s","transactionId":"%s"}'
)


class Beginner(Wire):
    """One connection. `ended` counts the transactions whose commit was accepted."""

    def __init__(self, address: str, topic: str, number: int, load: Load) -> None:
        super().__init__(address)
        self.ended = 0
        self.refused = 0
        self.code = ""  # of the last refusal
        self.took_us: list[float] = []
        self._topic, self._prefix, self._load = topic, f"{number:08X}", load
        self._begun = 0
        self._began: dict[int, float] = {}

    def begin(self) -> None:
        """Send the first half messages."""
        self.socket.sendall(b"".join(self._half(slot) for slot in range(self._load.inflight)))

    def read(self) -> None:
        """Take what came in: commit what was accepted, begin another for each that ended."""
        out = []
        for header in map(json.loads, self.headers()):
            slot = header["opaque"]
            if slot < ENDS and header["code"] == 0:
                out.append(self._end(slot, header["extFields"]))
                continue
            slot %= ENDS
            if header["code"] == 0:
                self.ended += 1
                self.took_us.append((time.perf_counter() - self._began[slot]) * 1e6)
            else:
                self.refused += 1
                self.code = str(header["code"])
            out.append(self._half(slot))
        if out:
            self.socket.sendall(b"".join(out))

    def _half(self, slot: int) -> bytes:
        self._begun += 1
        unique = f"{self._prefix}{self._begun:024X}"
        self._began[slot] = time.perf_counter()
        fields = HALF % (self._topic, slot % 4, int(time.time() * 1_000), unique)
        return frame(fields, slot, b"x" * self._load.size)

    def _end(self, slot: int, answer: dict[str, str]) -> bytes:
        unique = answer["transactionId"]
        place = int(answer["msgId"][-16:], 16)
        fields = END % (self._topic, answer["queueOffset"], place, unique, unique)
        return frame(fields, slot + ENDS)


def transact(address: str, topic: str, load: Load) -> Result:
    """Begin and commit `load.count` transactions; what it took."""
    mark = time.time_ns() & 0xFFFFFF00
    beginners = [Beginner(address, topic, mark + number, load) for number in range(load.conns)]
    seconds = drive(
        beginners, lambda: sum(one.ended + one.refused for one in beginners) >= load.count
    )
    ended, refused = sum(one.ended for one in beginners), sum(one.refused for one in beginners)
    took_us = [us for one in beginners for us in one.took_us]
    return report(ended, seconds, took_us, refused, "".join({one.code for one in beginners}))
