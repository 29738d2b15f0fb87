"""A group that pops as fast as it can, and acknowledges all that it gets.

Each connection has one pop in flight. The messages of its response are acknowledged one by one or
all in one request, in one write with the next pop. Frames are parsed only as far as needed, so that
broker and load can share a small machine: the opaque of a request is the number of messages that it
acknowledges, 0 for a pop.
"""

from __future__ import annotations

import base64
import json
import time

from ...harness.clusters import BROKER_NAME
from .frames import Result, Wire, drive, frame, report
from .loadgen import Load

POP_MESSAGE, ACK_MESSAGE, BATCH_ACK_MESSAGE = 200_050, 200_051, 200_151
INVISIBLE_MS = 60_000
POLL_MS = 5_000


class Popper(Wire):
    """One connection. `acked` counts the messages whose acknowledgement was answered."""

    def __init__(self, address: str, topic: str, group: str, broker: str, *, batched: bool) -> None:
        super().__init__(address)
        self.acked = 0
        self.refused = 0
        self.pop_us: list[float] = []
        self._topic, self._group, self._broker = topic, group, broker
        self._batched = batched
        self._asked = 0.0

    def begin(self) -> None:
        """Ask for the first messages."""
        self.pop()

    def pop(self, more: bytes = b"") -> None:
        """Ask for messages; `more` goes out in the same write."""
        now_ms = int(time.time() * 1_000)
        fields = (
            f'{{"code":{POP_MESSAGE},"extFields":{{"consumerGroup":"{self._group}","topic":'
            f'"{self._topic}","queueId":"-1","maxMsgNums":"32","invisibleTime":"{INVISIBLE_MS}",'
            f'"pollTime":"{POLL_MS}","bornTime":"{now_ms}","initMode":"0","order":"false",'
            f'"expType":"TAG","exp":"*"}}'
        )
        self._asked = time.perf_counter()
        self.socket.sendall(more + frame(fields, 0))

    def read(self) -> None:
        """Take what came in, acknowledge it and ask for more."""
        for header in self.headers():
            place = header.index(b'"opaque":') + 9
            count = int(header[place : header.index(b",", place)])
            is_done = header.startswith(b'{"code":0,')
            if count:
                if is_done:
                    self.acked += count
                else:
                    self.refused += count
                continue
            self.pop_us.append((time.perf_counter() - self._asked) * 1e6)
            self.pop(self._acks(json.loads(header)["extFields"]) if is_done else b"")

    def _acks(self, found: dict[str, str]) -> bytes:
        starts = [entry.split(" ") for entry in found["startOffsetInfo"].split(";")]
        offsets = [entry.split(" ")[2].split(",") for entry in found["msgOffsetInfo"].split(";")]
        how = f"{found['popTime']} {found['invisibleTime']} {found['reviveQid']}"
        if self._batched:
            return self._batch(found, starts, offsets)
        frames = []
        for (retry, queue, start), each in zip(starts, offsets, strict=True):
            handle = f"{start} {how} {retry} {self._broker} {queue} "
            head = (
                f'{{"code":{ACK_MESSAGE},"extFields":{{"consumerGroup":"{self._group}","topic":'
                f'"{self._topic}","queueId":"{queue}","extraInfo":"{handle}'
            )
            frames += [frame(f'{head}{offset}","offset":"{offset}"}}', 1) for offset in each]
        return b"".join(frames)

    def _batch(
        self, found: dict[str, str], starts: list[list[str]], offsets: list[list[str]]
    ) -> bytes:
        acks = []
        for (retry, queue, start), each in zip(starts, offsets, strict=True):
            bits = sum(1 << int(offset) - int(start) for offset in each)
            data = bits.to_bytes(-(-bits.bit_length() // 8), "little")
            acks.append(
                {"c": self._group, "t": self._topic, "r": retry, "so": int(start), "q": int(queue)}
                | {"rq": int(found["reviveQid"]), "pt": int(found["popTime"])}
                | {"it": int(found["invisibleTime"]), "b": base64.b64encode(data).decode()}
            )
        body = json.dumps({"brokerName": self._broker, "acks": acks}).encode()
        count = sum(map(len, offsets))
        return frame(f'{{"code":{BATCH_ACK_MESSAGE}', count, body)


def pop(address: str, topic: str, load: Load, group: str, batched: bool) -> Result:
    """Pop and acknowledge `load.count` messages; what it took."""
    poppers = [
        Popper(address, topic, group, BROKER_NAME, batched=batched) for _ in range(load.conns)
    ]
    seconds = drive(poppers, lambda: sum(one.acked + one.refused for one in poppers) >= load.count)
    acked, refused = sum(one.acked for one in poppers), sum(one.refused for one in poppers)
    return report(acked, seconds, [us for one in poppers for us in one.pop_us], refused)
