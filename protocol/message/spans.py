"""Spans of OpenTelemetry about messages.

They belong to the trace of the sender, whose context is in the message property `traceparent`
(W3C).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from . import properties

WAITING_MAX = 20_000  # spans that wait for the exporter; more are dropped, and counted
PARENT = properties.TRACE_PARENT.encode()
MARK = PARENT + b"\x01"  # in stored properties
SAMPLED = 1
_CONTEXT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class Context(NamedTuple):
    """The trace of a message and the span that sent it."""

    trace: bytes
    parent: bytes


class Span(NamedTuple):
    """Work on a message, from the first to the second of these times (ns since 1970).

    Attributes that are "" are left out. `error` says why the work failed.
    """

    context: Context
    what: str
    topic: str
    begin_ns: int
    end_ns: int
    attributes: Mapping[str, str | int]
    error: str = ""


class SpanList:
    """The spans that wait for the exporter. `dropped` counts those for which there was no room.

    `scope` names what makes the spans.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self._waiting: list[Span] = []
        self.dropped = 0

    def add(self, span: Span) -> None:
        """Keep a span for the exporter."""
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
        else:
            self._waiting.append(span)

    def take(self) -> list[Span]:
        """Remove and return the waiting spans."""
        waiting, self._waiting = self._waiting, []
        return waiting


def context_of(raw_properties: bytes) -> Context | None:
    """The context in the stored form of properties; None without one that is sampled."""
    found = _CONTEXT.fullmatch(properties.find(raw_properties, PARENT) or b"")
    if found is None or not int(found[3], 16) & SAMPLED:
        return None
    return Context(bytes.fromhex(found[1].decode()), bytes.fromhex(found[2].decode()))
