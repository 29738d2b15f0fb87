"""Decoding of responses. A header or body that can't be decoded raises ClientError."""

from typing import TypeVar

import msgspec

from ...protocol import codes
from ...protocol.bodies.body import Body, read
from ...protocol.codec.frame import FRAME_BYTES_MAX
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.wire import Header
from ..errors import ClientError

# Of a body, strict JSON or not: what fits into a frame (com.rocketmq.remoting.frameMaxLength).
RESPONSE_BYTES_MAX = FRAME_BYTES_MAX

AnyHeader = TypeVar("AnyHeader", bound=Header)
AnyBody = TypeVar("AnyBody", bound=Body)


def header_of(answer: Command, kind: type[AnyHeader], request: int) -> AnyHeader:
    """The response header as a `kind`; `request` is the request code."""
    try:
        return answer.header(kind)
    except (Refusal, msgspec.MsgspecError) as wrong:
        raise _unreadable(request, wrong) from wrong


def body_of(answer: Command, kind: type[AnyBody], request: int) -> AnyBody:
    """The response body as a `kind`; `request` is the request code."""
    try:
        return kind.decode(answer.body, lenient_bytes_max=RESPONSE_BYTES_MAX)
    except ValueError as wrong:
        raise _unreadable(request, wrong) from wrong


def bodies_of(answer: Command, kind: type[AnyBody], request: int) -> list[AnyBody]:
    """The answer's body as a list of `kind`, empty without a body."""
    try:
        if not answer.body:
            return []
        return read(answer.body, list[kind], lenient_bytes_max=RESPONSE_BYTES_MAX)  # type: ignore[valid-type]
    except ValueError as wrong:
        raise _unreadable(request, wrong) from wrong


def _unreadable(request: int, wrong: Exception) -> ClientError:
    name = codes.REQUEST_NAMES.get(request, str(request))
    return ClientError(
        f"the answer to {name} ({request}) can't be read: {wrong}; is the other side a RocketMQ "
        "broker or name server?"
    )
