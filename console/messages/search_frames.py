"""What the console and the process of its searches say to each other: frames of msgpack, each with
its length before it."""

import asyncio
from typing import Any

import msgspec

from ...client.base.security import Security
from ...client.errors import ClientError
from ...protocol.message.record import Record
from ..texts import Text
from .search import Progress

FRAME_BYTES_MAX = 64 << 20
LENGTH_BYTES = 4


class Said(msgspec.Struct):
    """A text, with what is needed to say it in another language."""

    pattern: str
    values: dict[str, "Said | str"]


class Start(msgspec.Struct, tag=True):
    """Begin a search. `number` is that of all its frames. `descriptors` is the file with the type
    `body_type` of the topic's bodies, both empty without one."""

    number: int
    servers: str | None
    security: dict[str, Any]
    topic: str
    begin_ms: int
    end_ms: int
    where: str
    sees_bodies: bool
    cursor: str
    hits_max: int
    is_newest_first: bool = False
    descriptors: str = ""
    body_type: str = ""


class More(msgspec.Struct, tag=True):
    """A batch of this search was used: another may be sent."""

    number: int


class Leave(msgspec.Struct, tag=True):
    """No request waits for this search any more."""

    number: int


class Batch(msgspec.Struct, tag=True):
    """Found messages, and how far the search is. `wrong` says why it can't go on, `is_last` that
    nothing follows."""

    number: int
    found: list[Record] = []
    scanned: int = 0
    count: int = 0
    left: int = 0
    why: Said | str | None = None
    cursor: str | None = None
    faults: list[Said | str] = []
    wrong: Said | str | None = None
    is_last: bool = False

    def progress(self) -> Progress:
        """The progress of the search."""
        return Progress(
            self.scanned,
            self.count,
            self.left,
            None if self.why is None else heard(self.why),
            self.cursor,
            [heard(one) for one in self.faults],
        )


Asked = Start | More | Leave


def batch_of(number: int, found: list[Record], progress: Progress) -> Batch:
    """The batch of the messages that were found since the last batch."""
    return Batch(
        number,
        found,
        progress.scanned,
        progress.found,
        progress.left,
        None if progress.why is None else said(progress.why),
        progress.cursor,
        [said(one) for one in progress.faults],
    )


def told(security: Security) -> dict[str, Any]:
    """The settings of a client as values of a frame; ClientError for an SSLContext, which is none.

    They go through a pipe: a command line or an environment could be read by others."""
    if not isinstance(security.tls, bool):
        raise ClientError("tls is an SSLContext, which only its own process has; give tls_ca")
    return {
        "access_key": security.access_key,
        "secret_key": security.secret_key,
        "security_token": security.security_token,
        "tls": security.tls,
        "tls_ca": str(security.tls_ca),
        "tls_insecure": security.tls_insecure,
    }


def said(text: str) -> Said | str:
    """A text for a frame."""
    if not isinstance(text, Text):
        return str(text)
    return Said(text.pattern, {name: said(one) for name, one in text.values.items()})


def heard(text: Said | str) -> str:
    """A text from a frame."""
    if isinstance(text, str):
        return text
    return Text(text.pattern, **{name: heard(one) for name, one in text.values.items()})


def frame(message: Asked | Batch) -> bytes:
    """The bytes of a frame."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


async def read_frame(pipe: asyncio.StreamReader) -> bytes | None:
    """The next frame without its length; None at the end. ValueError for one beyond the limit."""
    try:
        size = int.from_bytes(await pipe.readexactly(LENGTH_BYTES), "big")
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"a frame has {size:,} bytes, the limit is {FRAME_BYTES_MAX:,}")
        return await pipe.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
