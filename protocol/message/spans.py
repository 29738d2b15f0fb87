"""Spans of OpenTelemetry about messages, as requests of its protocol (OTLP).

They belong to the trace of the sender, whose context is in the message property `traceparent`
(W3C). The fields are those of opentelemetry/proto/trace/v1/trace.proto.
"""

import re
import struct
from collections.abc import Generator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from ..codec.protobuf_fields import bytes_field, number_field, text_field
from . import properties

WAITING_MAX = 20_000  # spans that wait for the exporter; more are dropped, and counted
PER_REQUEST = 500
PARENT = properties.TRACE_PARENT.encode()
MARK = PARENT + b"\x01"  # in stored properties
SAMPLED = 1
SERVER = 2  # the kind of a span
ERROR = 2  # the code of a status
_CONTEXT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class Context(NamedTuple):
    """The trace of a message and the span that sent it."""

    trace: bytes
    parent: bytes


class SpanList:
    """The spans that wait for the exporter. `dropped` counts those for which there was no room.

    `scope` names what makes the spans.
    """

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._waiting: list[bytes] = []
        self.dropped = 0

    def add(
        self,
        context: Context,
        what: str,
        topic: str,
        times_ns: tuple[int, int],
        attributes: Mapping[str, str | int],
        error: str = "",
    ) -> None:
        """Make the span of work on a message, from the first to the second of these times.

        Attributes that are "" are left out. `error` says why the work failed.
        """
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        given = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": what,
            "messaging.destination.name": topic,
            **{name: value for name, value in attributes.items() if value != ""},
        }
        begin_ns, end_ns = times_ns
        place = f"{what} {given} {end_ns}".encode("utf-8", "replace")
        own = blake2b(context.parent + place, digest_size=8).digest()
        status = number_field(3, ERROR) + text_field(2, error) if error else b""
        self._waiting.append(
            bytes_field(1, context.trace)
            + bytes_field(2, own)
            + bytes_field(4, context.parent)
            + text_field(5, f"{what} {topic}")
            + number_field(6, SERVER)
            + b"\x39"
            + struct.pack("<Q", begin_ns)
            + b"\x41"
            + struct.pack("<Q", end_ns)
            + b"".join(_attribute(9, name, value) for name, value in given.items())
            + (bytes_field(15, status) if status else b"")
        )

    def requests(self) -> Generator[None, None, list[bytes]]:
        """A generator that returns what waits as requests (ExportTraceServiceRequest)."""
        waiting, self._waiting = self._waiting, []
        done = []
        for at in range(0, len(waiting), PER_REQUEST):
            spans = b"".join(bytes_field(2, one) for one in waiting[at : at + PER_REQUEST])
            scope = bytes_field(1, text_field(1, self._scope)) + spans
            resource = bytes_field(1, _attribute(1, "service.name", "aerobee"))
            done.append(bytes_field(1, resource + bytes_field(2, scope)))
            yield
        return done


def context_of(raw_properties: bytes) -> Context | None:
    """The context in the stored form of properties; None without one that is sampled."""
    found = _CONTEXT.fullmatch(properties.find(raw_properties, PARENT) or b"")
    if found is None or not int(found[3], 16) & SAMPLED:
        return None
    return Context(bytes.fromhex(found[1].decode()), bytes.fromhex(found[2].decode()))


def _attribute(number: int, name: str, value: str | int) -> bytes:
    inside = text_field(1, value) if isinstance(value, str) else number_field(3, value)
    return bytes_field(number, text_field(1, name) + bytes_field(2, inside))
