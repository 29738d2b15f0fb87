"""Spans of a broker: a message was stored, a message was delivered.

They are made from the records themselves, so every way into the log and to a consumer has them. A
message without a sampled context in its property `traceparent` has none.
"""

import time
from collections.abc import Iterable

from ...protocol.aio.rpc_latency import RpcLatency
from ...protocol.message import properties
from ...protocol.message.record import Record, decode_all
from ...protocol.message.spans import MARK, Span, SpanList, context_of
from ...store.base.kernels import Buffer
from ...store.log.commit_log import CommitLog

STORE, DELIVER = "store", "deliver"


class Spans(SpanList):
    """The spans of one broker that wait for the exporter."""

    def __init__(
        self,
        broker_name: str,
        log: CommitLog,
        latency: RpcLatency,
    ) -> None:
        """Messages from the end of the `log` on. A span begins with the loop iteration, as
        `latency` has it."""
        super().__init__("aerobee.broker")
        self._broker_name = broker_name
        self._log = log
        self._latency = latency
        self._at = log.written

    def stored(self) -> None:
        """Make the spans of what this loop iteration has written to the log."""
        log, end = self._log, self._log.written
        while self._at < end:
            segment = log.segments.find(self._at)
            if segment is None:
                break
            stop = min(end, segment.end)
            if segment.view.find(MARK, self._at - segment.base, stop - segment.base) >= 0:
                self._walk(stop)
            self._at = stop
        self._at = end

    def delivered(self, records: Iterable[Buffer], group: str) -> None:
        """Make the spans of records that go to a member of the group."""
        for data in records:
            whole = bytes(data)
            if MARK in whole:
                for record in decode_all(whole):
                    self._note(DELIVER, record, group)

    # --- inside ---------------------------------------------------------------------------------

    def _walk(self, stop: int) -> None:
        place = self._at
        while place < stop:
            found = self._log.record(place)
            if found is None:  # the rest of the file has none
                return
            place += len(found)
            whole = bytes(found)
            if MARK in whole:
                self._note(STORE, decode_all(whole)[0], "")

    def _note(self, what: str, record: Record, group: str) -> None:
        context = context_of(record.raw_properties)
        if context is None:
            return
        end_ns, began = time.time_ns(), self._latency.began
        begin_ns = end_ns - int((time.perf_counter() - began) * 1e9) if began else end_ns
        unique = properties.find(record.raw_properties, b"UNIQ_KEY") or b""
        attributes: dict[str, str | int] = {
            "messaging.destination.partition.id": str(record.queue_id),
            "messaging.message.id": unique.decode(errors="replace"),
            "messaging.rocketmq.message.offset": record.queue_offset,
            "messaging.consumer.group.name": group,
            "aerobee.broker.name": self._broker_name,
        }
        self.add(Span(context, what, record.topic, begin_ns, end_ns, attributes))
