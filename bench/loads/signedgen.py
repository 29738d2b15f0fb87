"""Signed sends, and sends over TLS, as fast as a broker answers them: what `loadgen` can't send.

Each connection has one send in flight, or several that leave in one write. All frames are made and
signed before the clock starts, so that broker and load can share a small machine; the fields are
those of `loadgen`.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator

from ...protocol.security.signature import signed
from .frames import Result, Wire, drive, frame, report
from .loadgen import Load, LoadFailed

SEND_MESSAGE_V2 = 310
QUEUES = 4
TAKEN = b'{"code":0,'  # how the header of a success begins


def signed_send(number: int, topic: str, user: str, secret: str, body: bytes) -> bytes:
    """The frame of one send, signed unless `user` is empty."""
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01t{number % 4}"
    fields = {
        "a": "signers",
        "b": topic,
        "c": "TBW102",
        "d": str(QUEUES),
        "e": str(number % QUEUES),
        "f": "0",
        "g": str(int(time.time()) * 1_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
    }
    if user:
        fields = signed(fields, body, user, secret)
    text = json.dumps(fields, separators=(",", ":"))
    return frame(f'{{"code":{SEND_MESSAGE_V2},"extFields":{text}', number, body)


class Signer(Wire):
    """One connection. Its next frames, in one write, leave when all before are answered."""

    def __init__(self, address: str, left: Iterator[list[bytes]], *, tls: bool) -> None:
        super().__init__(address)
        if tls:  # without checking the server's certificate
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self.waits_us: list[float] = []
        self._left = left
        self._unanswered = 0
        self._sent_at = 0.0

    def begin(self) -> None:
        """Send the next frames, if any are left."""
        frames = next(self._left, [])
        self._sent_at, self._unanswered = time.perf_counter(), len(frames)
        if frames:
            self.socket.sendall(b"".join(frames))

    def read(self) -> None:
        """Take the responses that came in. LoadFailed for a refusal."""
        for header in self.headers():
            if not header.startswith(TAKEN):
                raise LoadFailed(f"a send was not taken: {header[:500]!r}")
            self.waits_us.append((time.perf_counter() - self._sent_at) * 1e6)
            self._unanswered -= 1
        if not self._unanswered:
            self.begin()


def send(address: str, topic: str, load: Load, user: str, secret: str, tls: bool = False) -> Result:
    """Send `load.count` messages; what it took. LoadFailed at the first refusal."""
    body = bytes(load.size)
    frames = [signed_send(number, topic, user, secret, body) for number in range(load.count)]
    left = iter([frames[at : at + load.inflight] for at in range(0, load.count, load.inflight)])
    signers = [Signer(address, left, tls=tls) for _ in range(load.conns)]
    seconds = drive(signers, lambda: sum(len(one.waits_us) for one in signers) >= load.count)
    return report(load.count, seconds, [us for one in signers for us in one.waits_us])
