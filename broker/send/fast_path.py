"""The compiled engine: the sends of many connections in one loop iteration, handled all at once.

Connections leave what begins with a send in a batch (`protocol/aio/chunks.py`). At the end of the
loop iteration compiled code parses it (`protocol/kernels/send_table.py`), encodes the records
(`store/kernels/record_encoder.py`) and the responses. Other requests, and sends to a queue that the
router has no destination for, go back to their connection, which has them handled one by one.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ...protocol import codes
from ...protocol.aio.chunks import ChunkBatch, Chunks, joined
from ...protocol.aio.compiled_io import read_all, write_all
from ...protocol.aio.connection import Connection, writable_fds
from ...protocol.aio.epoll_reader import EpollReader
from ...protocol.aio.rpc_latency import ONEWAY, RESPONSE_BITS, RpcLatency
from ...protocol.aio.scheduler import Scheduler
from ...protocol.codec.frame import decode_all, encode_request, encode_response
from ...protocol.command import Command, Response
from ...protocol.headers.send import SendMessage, response_parts
from ...protocol.kernels.parse_sends import Bytes, Numbers
from ...protocol.kernels.send_table import SendTable
from ...protocol.kernels.signatures import Signatures, signers
from ...protocol.message.properties import PROPERTIES_BYTES_MAX
from ...protocol.message.recall_handle import handle_prefix
from ...protocol.security.signature import signed, signing_key
from ...store.engine.store import MessageStore
from ...store.kernels.compiled import CompiledKernels
from ...store.kernels.compiled import prepare as prepare_kernels
from ...store.kernels.record_encoder import RecordDestination, RecordEncoder
from ...store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from ..access.access import Access
from ..runtime.arrivals import SMALL_BYTES, above_small
from ..settings.config import BrokerConfig
from .finish import SendFinish
from .router import Router, SendRoute

log = logging.getLogger(__name__)

# What the headers of sends begin with, and whether a batch pays for one of them.
STARTS = {
    b'{"code":%d,' % codes.SEND_MESSAGE_V2: False,
    b'{"code":%d,' % codes.SEND_BATCH_MESSAGE: True,
}
SAMPLE = SendMessage("g", "t", "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x010\x02KEYS\x01k\x02")


def prepare() -> None:
    """Have all compiled functions made, or found in the cache, which takes from a third of a second
    to ten of them."""
    table, records = SendTable(response_parts(b"", b"")), RecordEncoder()
    request = encode_request(codes.SEND_MESSAGE_V2, 0, SAMPLE.to_fields(), b"0")
    table.read(request, [len(request)], 1, 100)
    queue = ConsumeQueue(Path(), "t", 0, ENTRY_BYTES)
    size = queue.fixed_bytes + table.group_totals[0][2]
    stored = [RecordDestination(queue, b"")]
    records.set_hosts(table, [bytes(8)], bytes(8))
    records.make(table, stored, {queue: 1}, 0, size, 0)
    ends = table.write_responses({})
    room, none = table.answers.ctypes.data, ends - ends - 1
    guarded = SendTable(response_parts(b"", b""), is_guarded=True)
    fields = signed(SAMPLE.to_fields(), b"0", "user", "secret")
    request = encode_request(codes.SEND_MESSAGE_V2, 0, fields, b"0")
    guarded.read(request, [len(request)], 1, 100)
    if Signatures().wrong(guarded, signers(guarded)[1], [signing_key(b"secret")]).any():
        raise RuntimeError("the digests of machine code differ from those of hashlib")
    write_all(none, room, ends, np.zeros(1, np.int64))
    read_all(none, room, 1, 1, np.zeros(1, np.int64))
    prepare_kernels()


class Responses:
    """The responses to the sends of one loop iteration: those to each of the `receivers` end at one
    of the `ends` of `data`. `counts` says how many requests they are for, by `SendRoute.answer`.

    The syncer keeps them while they wait, and then has them go out (`syncer.Responses`).
    """

    __slots__ = ("_counts", "_latency", "_release", "data", "ends", "receivers")

    def __init__(
        self,
        receivers: list[Connection],
        data: Bytes,
        ends: Numbers,
        counts: dict[int, int],
        latency: RpcLatency,
        release: "Callable[[Responses], None]",
    ) -> None:
        self.receivers = receivers
        self.data = data
        self.ends = ends
        self._counts = counts
        self._latency = latency
        self._release = release

    def __len__(self) -> int:
        return sum(self._counts.values())

    def respond(self) -> None:
        for answer, requests in self._counts.items():
            self._latency.answered[answer] += requests
        self._release(self)

    def send(self, waited_ms: int) -> None:
        self._count(codes.SUCCESS, waited_ms)
        self._release(self)

    def send_late(self, code: int, waited_ms: int) -> None:
        self._count(code, waited_ms)
        self._send_each(lambda response: Response(code, response.fields()))

    def refuse(self, remark: str, waited_ms: int) -> None:
        refused = Response(codes.SERVICE_NOT_AVAILABLE, remark=remark)
        self._count(refused.code, waited_ms)
        self._send_each(lambda response: refused)

    def _count(self, code: int, waited_ms: int) -> None:
        for key, count in self._counts.items():
            request = key >> RESPONSE_BITS
            if key & ONEWAY:
                self._latency.oneway(request, code, count)
            else:
                self._latency.late(request, code, waited_ms, count)

    def write(self) -> None:
        """Write them: to the sockets what these take, the rest through the transports."""
        fds = np.array(writable_fds(self.receivers), np.int64)
        written = np.empty(len(self.receivers), np.int64)
        data, ends = self.data, self.ends
        if write_all(fds, data.ctypes.data, ends, written) == ends[-1]:
            return
        start = 0
        for connection, end, size in zip(
            self.receivers, ends.tolist(), written.tolist(), strict=True
        ):
            if start + size < end:
                connection.transport.write_later(data[start + size : end].tobytes())
            start = end

    def _send_each(self, changed: Callable[[Command], Response]) -> None:
        """Send to each receiver what each of its responses is `changed` into."""
        start = 0
        for connection, end in zip(self.receivers, self.ends.tolist(), strict=True):
            if start < end and not connection.is_lost:
                for response in decode_all(self.data[start:end].tobytes()):
                    connection.transport.write_later(
                        b"".join(encode_response(response, changed(response)))
                    )
            start = end


class CompiledSends:
    """Takes the sends in `batch` into the store: the broker has `take` called each loop iteration.

    `write_templates` has to come first. `kernels` are the compiled loops of the store, which a
    slave uses without the rest.
    """

    kernels = CompiledKernels

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        router: Router,
        finish: SendFinish,
        access: Access | None,
        latency: RpcLatency,
        scheduler: Scheduler,
        now_ms: Callable[[], int],
    ) -> None:
        """`access` says which requests may be served, None where all may."""
        self.batch: ChunkBatch[Connection] = ChunkBatch(STARTS)
        self._config = config
        self._store = store
        self._router = router
        self._finish = finish
        self._syncer = finish.syncer
        self._access = access
        self._latency = latency
        self._scheduler = scheduler
        self._now_ms = now_ms
        self._records = RecordEncoder()
        self._signatures = Signatures()
        store.use(self.kernels())

    def write_templates(self, suffix: bytes) -> None:
        """Take over traceOn, which stands in each response, and in the `suffix` that comes behind
        the properties of each message."""
        config = self._config
        self._text_bytes_max = PROPERTIES_BYTES_MAX - len(suffix)
        region = config.region_id.encode()
        parts = response_parts(self._store.host_hex, region, trace_on=config.trace_on)
        self._table = SendTable(parts, is_guarded=self._access is not None)
        self._router.forget(suffix)
        self._forgot = 0

    def open(self) -> None:
        """Let the connections use the compiled sends."""
        if EpollReader.can_be:
            self.batch.reader = EpollReader(self._scheduler, self.batch)
        self._scheduler.batch = self.batch

    async def close(self) -> None:
        """Let the transports of all connections read again."""
        if self.batch.reader is not None:
            self.batch.reader.close()
            self.batch.reader = None

    def take(self) -> None:
        """Store what came in, and respond to it; the connections serve the rest one by one."""
        chunks, pays = self.batch.take()
        senders = chunks.senders
        done = self._take(chunks) if pays else [0] * len(senders)
        if done is not None:
            for connection, chunk, size in zip(senders, chunks.each(), done, strict=True):
                if size < len(chunk):
                    connection.serve_unbatched(chunk[size:])

    def _take(self, chunks: Chunks[Connection], *, is_allowed: bool = False) -> list[int] | None:
        """Store the sends of the chunks; returns how many bytes of each chunk are stored, None for
        all. With `is_allowed` access control has checked every request of these chunks already."""
        table, store = self._table, self._store
        senders = chunks.senders
        try:
            table.read(
                chunks.data, chunks.ends, store.settings.max_message_bytes, self._text_bytes_max
            )
        except Exception:  # nothing is stored yet, and the connections serve all of it
            log.exception("the compiled reader of sends failed")
            table.forget()  # it may have been in the middle of noting one
            return [0] * len(senders)
        if not table.count:
            return table.consumed
        access, syncer = self._access, self._syncer
        if access is not None and not is_allowed:
            refused = refused_chunks(access, self._signatures, table, senders)
            # What the tables had no room for is read, and must be checked, once they are emptier.
            is_allowed = table.consumed is None
            if refused:
                return self._without(refused, chunks, is_allowed=is_allowed)
        if syncer is not None and (
            syncer.shortage or sum(requests for *_, requests in table.group_totals) > syncer.room
        ):
            return [0] * len(senders)  # each is refused
        destinations, exceptional = self._destinations()
        if exceptional:
            return self._without(table.chunks_of(exceptional), chunks, is_allowed=is_allowed)
        hosts = [connection.host for connection in senders]
        stored = [
            RecordDestination(each.queue, each.properties_suffix, each.delay_ms)
            for each in destinations
        ]
        if not store.put_table(table, stored, hosts, self._records):
            return [0] * len(senders)
        self._count(destinations)
        if any(each.slot_ms for each in destinations):
            self._finish.tell_timers(*self._timers(destinations))
        responses = self._responses(destinations, senders)
        self._finish.respond(store.log_end, responses, is_waiting=syncer is not None)
        return table.consumed

    def _destinations(self) -> tuple[list[SendRoute], list[int]]:
        """The destinations of the groups of sends, and the numbers of groups without one."""
        table, router = self._table, self._router
        if table.forgot != self._forgot:
            router.forget_groups()
            self._forgot = table.forgot
        now_ms = self._now_ms()
        destinations: list[SendRoute] = []
        exceptional: list[int] = []
        for number, messages, *_ in table.group_totals:
            group, destination = table.groups[number], None
            if self._syncer is None or not group.is_at_once:
                destination = router.find(number, group, messages, now_ms)
            if destination is None:
                exceptional.append(number)
            else:
                destinations.append(destination)
        return destinations, exceptional

    def _responses(self, destinations: list[SendRoute], senders: list[Connection]) -> Responses:
        """The responses to the sends, which are stored."""
        table = self._table
        counts: dict[int, int] = {}
        for each, (*_, requests) in zip(destinations, table.group_totals, strict=True):
            counts[each.answer] = counts.get(each.answer, 0) + requests
        words = {
            number: handle_prefix(each.target.name, self._config.broker_name, each.slot_ms + 1)
            for each, (number, *_) in zip(destinations, table.group_totals, strict=True)
            if each.slot_ms
        }
        ends = table.write_responses(words)
        data = table.answers if self._syncer is None else table.answers[: ends[-1]].copy()
        return Responses(senders, data, ends, counts, self._latency, self._scheduler.release)

    def _count(self, destinations: list[SendRoute]) -> None:
        """Count the messages, which are stored, and wake their readers."""
        for (target, key, queue, suffix, _, _, kind, _), part in zip(
            destinations, self._table.group_totals, strict=True
        ):
            number, messages, came, largest, requests = part
            extra = queue.fixed_bytes + len(suffix)
            size = came + messages * extra
            sizes: list[int] = []
            if self._records.extra_bytes:
                sizes = self._sizes(number)
                size = sum(sizes)
            elif largest + extra > SMALL_BYTES:
                sizes = self._sizes(number)
            large = above_small(sizes) if sizes else ()
            batches = requests if requests != messages else 0
            self._finish.count(target, key, kind, messages, size, large, batches)

    def _sizes(self, number: int) -> list[int]:
        """The size in the log of each message of the group with this number."""
        sends = self._table.sends[: self._table.count]
        sizes: list[int] = sends["size"][sends["group"] == number].tolist()
        return sizes

    def _timers(self, destinations: list[SendRoute]) -> tuple[list[int], list[str]]:
        """The entries and topics of the messages on the timer wheel."""
        table = self._table
        by_number = {
            number: each
            for each, (number, *_) in zip(destinations, table.group_totals, strict=True)
        }
        slots = np.zeros(len(table.groups), np.int64)
        for number, each in by_number.items():
            slots[number] = each.slot_ms
        sends = table.sends[: table.count]
        sends = sends[slots[sends["group"]] > 0]
        numbers = np.empty((len(sends), 4), np.int64)
        for column, name in enumerate(("queue_offset", "log_offset", "size")):
            numbers[:, column] = sends[name]
        numbers[:, 3] = slots[sends["group"]]
        names = [by_number[number].target.name for number in sends["group"].tolist()]
        return numbers.ravel().tolist(), names

    def _without(
        self, left_out: set[int], chunks: Chunks[Connection], *, is_allowed: bool
    ) -> list[int]:
        """`_take` without the chunks that have these numbers."""
        each = chunks.each()
        taken = [0] * len(each)
        kept = [number for number in range(len(each)) if number not in left_out]
        if kept:
            rest = [each[number] for number in kept]
            done = self._take(
                joined([chunks.senders[number] for number in kept], rest), is_allowed=is_allowed
            )
            for number, size in zip(kept, done or map(len, rest), strict=True):
                taken[number] = size
        return taken


NO_KEY = signing_key(b"")  # in place of that of a user that is not there


def refused_chunks(
    access: Access, signatures: Signatures, table: SendTable, senders: Sequence[Connection]
) -> set[int]:
    """The numbers of the chunks with a request whose signature is not proven, or whose user may not
    send to its topic. `senders` has the connection of each chunk."""
    chunks, groups = table.signed[:, 0], table.signed[:, 1]
    names, users = signers(table)
    found = [access.signer(name.decode()) for name in names]
    is_known = np.array([each is not None for each in found], np.bool_)
    keys = [NO_KEY if each is None else each[1] for each in found]
    refused = signatures.wrong(table, users, keys) | ~is_known[users]
    # Requests of one user to one topic from one machine are allowed together.
    machines = {connection.host[:-4]: connection for connection in senders}
    uses = users * len(table.groups) + groups
    if len(machines) > 1:
        numbers = {host: number for number, host in enumerate(machines)}
        machine_of = np.array([numbers[each.host[:-4]] for each in senders], np.int64)
        uses += machine_of[chunks] * len(names) * len(table.groups)
    connections = list(machines.values())
    for use in np.unique(uses[~refused]).tolist():
        rest, group = divmod(use, len(table.groups))
        machine, number = divmod(rest, len(names))
        user = found[number]
        assert user is not None  # its requests are refused
        sent = table.groups[group]
        code = codes.SEND_BATCH_MESSAGE if sent.is_batch else codes.SEND_MESSAGE_V2
        if not access.may_send(code, user[0], sent.topic, connections[machine]):
            refused |= uses == use
    return set(chunks[refused].tolist())
