"""Transactions as fast as they go: half messages, each committed as soon as it is accepted.

Each connection has a given number of transactions under way. One begins with the send of its half
message and ends with the answer to its commit; the next begins in the same write. A plain reader of
frames, as popgen. Prints one JSON line when the given number of transactions has ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from .frames import Wire, drive, frame, report, run_alone
from .loadgen import Load, LoadFailed, refused_max

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

    def __init__(self, address: tuple[str, int], topic: str, number: int, size: int) -> None:
        super().__init__(address)
        self.ended = 0
        self.refused = 0
        self.code = ""  # of the last refusal
        self.took_us: list[float] = []
        self._topic, self._prefix, self._body = topic, f"{number:08X}", b"x" * size
        self._begun = 0
        self._began: dict[int, float] = {}

    def begin(self, count: int) -> None:
        """Send this many half messages."""
        self.socket.sendall(b"".join(self._half(slot) for slot in range(count)))

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
        return frame(fields, slot, self._body)

    def _end(self, slot: int, answer: dict[str, str]) -> bytes:
        unique = answer["transactionId"]
        place = int(answer["msgId"][-16:], 16)
        fields = END % (self._topic, answer["queueOffset"], place, unique, unique)
        return frame(fields, slot + ENDS)


def start(address: str, topic: str, load: Load) -> dict[str, float]:
    """Runs a load in a process of its own; its line. LoadFailed when requests were refused, but for
    the few that the real broker is too busy for."""
    words = ["--conns", str(load.conns), "--inflight", str(load.inflight)]
    words += ["--size", str(load.size), "--count", str(load.count)]
    found = run_alone("trangen", address, topic, words, load)
    if found["errors"] > refused_max(load, found["code"]):
        raise LoadFailed(f"{load.name} on {topic}: {found}")
    del found["code"]
    return dict(found)


def run(options: argparse.Namespace) -> dict[str, float | str]:
    """Begin and commit `options.count` transactions; what it took, and the code of a refusal."""
    address = (options.host, options.port)
    mark = time.time_ns() & 0xFFFFFF00
    beginners = [
        Beginner(address, options.topic, mark + number, options.size)
        for number in range(options.conns)
    ]
    for beginner in beginners:
        beginner.begin(options.inflight)
    seconds = drive(
        beginners, lambda: sum(one.ended + one.refused for one in beginners) >= options.count
    )
    ended, refused = sum(one.ended for one in beginners), sum(one.refused for one in beginners)
    found = report(ended, refused, seconds, [us for one in beginners for us in one.took_us])
    return found | {"code": "".join({one.code for one in beginners})}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one load."""
    parser = argparse.ArgumentParser(description="Begins transactions and commits them.")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("--conns", type=int, default=4)
    parser.add_argument("--inflight", type=int, default=16)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--count", type=int, default=10_000)
    print(json.dumps(run(parser.parse_args(argv))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
