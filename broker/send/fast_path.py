"""Plain sends of many connections, done all at once: the lane.

Where numba is installed the connections leave what begins with a send in the lane (`turn.Lane`).
At the end of the turn compiled code reads it (`protocol/kernels/plain_sends.py`), makes the records
(`store/kernels/plain_records.py`) and the answers. What is not plain, or is for a queue that needs
a closer look, goes on to `SendHandlers.take`, by its connection and in its order.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...protocol import codes
from ...protocol.aio.compiled_io import read_all, write_all
from ...protocol.aio.connection import Connection, writable_fds
from ...protocol.aio.epoll_reader import Crowd
from ...protocol.aio.rpc_latency import ONEWAY, RpcLatency
from ...protocol.aio.scheduler import START, Block, Lane, Scheduler, block_of
from ...protocol.codec.frame import decode_all, encode_request, encode_response
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.send import SendMessage, response_parts
from ...protocol.kernels.plain_reading import Bytes, Numbers
from ...protocol.kernels.plain_sends import Group, PlainSends
from ...protocol.message.properties import PROPERTIES_BYTES_MAX
from ...protocol.message.recall_handle import words_before
from ...store.engine.store import MessageStore
from ...store.kernels.compiled import CompiledKernels
from ...store.kernels.compiled import prepare as prepare_kernels
from ...store.kernels.plain_records import Destination, PlainRecords
from ...store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from ..access.access import Access
from ..pull.long_polls import LongPolls
from ..runtime.arrivals import DELAY, FIFO, NORMAL, SMALL_BYTES
from ..runtime.stats import Stats
from ..runtime.syncer import Syncer
from ..scheduled.delivery_policy import DeliveryPolicy
from ..settings.config import BrokerConfig
from ..topics.topics import Target, Topics
from .handlers import SEND_BATCH_OK, SEND_V2_OK
from .signed_sends import refused_pieces

log = logging.getLogger(__name__)

NO_WAIT = b"WAIT\x01false"  # the response to such a message doesn't wait for the disk or for slaves
# What the headers begin with that clients write.
MESSAGE_START, BATCH_START = (
    b'{"code":%d,' % code for code in (codes.SEND_MESSAGE_V2, codes.SEND_BATCH_MESSAGE)
)
REQUEST_BITS = 32  # of a key of `RpcLatency`, below the code of the request
SAMPLE = SendMessage("g", "t", "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x010\x02KEYS\x01k\x02")


def prepare() -> None:
    """Have all compiled functions made, or found in the cache, which takes from a third of a second
    to ten of them."""
    plain, records = PlainSends(response_parts(b"", b"")), PlainRecords()
    request = encode_request(codes.SEND_MESSAGE_V2, 0, SAMPLE.to_fields(), b"0")
    plain.read(request, [len(request)], 1, 100)
    queue = ConsumeQueue(Path(), "t", 0, ENTRY_BYTES)
    size = queue.fixed_bytes + plain.parts[0][2]
    courses = [Destination(queue, b"")]
    records.set_hosts(plain, [bytes(8)], bytes(8))
    records.make(plain, courses, {queue: 1}, 0, size, 0)
    ends = plain.write_responses({})
    room, none = plain.answers.ctypes.data, ends - ends - 1
    write_all(none, room, ends, np.zeros(1, np.int64))
    read_all(none, room, 1, 1, np.zeros(1, np.int64))
    prepare_kernels()


class Way(NamedTuple):
    """What becomes of a group of sends: its topic, where it goes, the queue that was asked for, and
    its slot of the timer wheel in ms, 0 for none. One that `is_timed` holds for a moment only.
    `kind` is the type of its messages, and `answer` under what its requests are counted, for the
    metrics."""

    target: Target
    course: Destination
    key: tuple[str, int]
    slot_ms: int
    is_timed: bool
    kind: str
    answer: int


class Responses:
    """The responses to the sends of one loop iteration: those to each of the `receivers` end at one
    of the `ends` of `data`. `counts` says how many requests they answer, by `Way.answer`.

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

    def give(self, waited_ms: int) -> None:
        self._count(codes.SUCCESS, waited_ms)
        self._release(self)

    def give_late(self, code: int, waited_ms: int) -> None:
        self._count(code, waited_ms)
        self._give_each(lambda response: Response(code, response.fields()))

    def refuse(self, remark: str, waited_ms: int) -> None:
        refused = Response(codes.SERVICE_NOT_AVAILABLE, remark=remark)
        self._count(refused.code, waited_ms)
        self._give_each(lambda response: refused)

    def _count(self, code: int, waited_ms: int) -> None:
        for key, count in self._counts.items():
            request = key >> REQUEST_BITS
            if key & ONEWAY:
                self._latency.oneway(request, code, count)
            else:
                self._latency.late(request, code, waited_ms, count)

    def _give_each(self, changed: Callable[[Command], Response]) -> None:
        """Send to each receiver what each of its responses is `changed` into."""
        start = 0
        for connection, end in zip(self.receivers, self.ends.tolist(), strict=True):
            if start < end and not connection.is_lost:
                for response in decode_all(self.data[start:end].tobytes()):
                    connection.write_later(b"".join(encode_response(response, changed(response))))
            start = end


class PlainLane:
    """Takes what is in the `lane` into the store: the broker has `take` called each turn.

    `write_templates` has to come first.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        delivery_policy: DeliveryPolicy,
        long_polls: LongPolls,
        stats: Stats,
        syncer: Syncer | None,
        access: Access | None,
        latency: RpcLatency,
        now_ms: Callable[[], int],
    ) -> None:
        """`syncer` is what responses wait for, None where they don't wait; `access` says which
        requests may be served, None where all may."""
        starts = frozenset((MESSAGE_START, BATCH_START))
        self.lane = Lane(self._write, self._drop, starts, self._is_worth)
        self._syncer = syncer
        self._access = access
        self._latency = latency
        self._config = config
        self._broker_name = config.broker_name
        self._store = store
        self._topics = topics
        self._delivery_policy = delivery_policy
        self._long_polls = long_polls
        self._stats = stats
        self._now_ms = now_ms
        self._records = PlainRecords()
        self._answered: list[Connection] = []  # of this iteration
        self._ready: list[Responses] = []  # to be written at its end
        store.use(CompiledKernels())

    def write_templates(self, suffix: bytes) -> None:
        """Take over traceOn, which stands in each answer, and in the `suffix` that comes behind the
        properties of each message."""
        config = self._config
        self._suffix = suffix
        self._text_bytes_max = PROPERTIES_BYTES_MAX - len(suffix)
        region = config.region_id.encode()
        parts = response_parts(self._store.host_hex, region, trace_on=config.trace_on)
        self._plain = PlainSends(parts, is_guarded=self._access is not None)
        self._ways: dict[int, Way] = {}  # by the number of their group
        self._forgot = 0

    def open(self, scheduler: Scheduler) -> None:
        """From now on the connections use it."""
        if Crowd.can_be:
            self.lane.crowd = Crowd(scheduler)
        self._scheduler = scheduler
        scheduler.lane = self.lane

    async def close(self) -> None:
        """Let the connections read by themselves again."""
        if self.lane.crowd is not None:
            self.lane.crowd.close()
            self.lane.crowd = None

    def take(self) -> None:
        """Store what came in, and answer it; the connections serve the rest the common way."""
        lane = self.lane
        block = lane.empty()
        came = block.senders
        released = lane.answered  # whose responses waited until now
        # If anything fails from here on, none of these gets a response that says otherwise.
        lane.answered = released + came
        self._answered = []
        taken: list[int] | None = [0] * len(came)
        if len(came) >= lane.few or any(map(self._is_worth, block.pieces())):
            taken = self._take(block)
        lane.answered = released + self._answered
        if taken is not None:
            for connection, piece, size in zip(came, block.pieces(), taken, strict=True):
                if size < len(piece):
                    connection.serve(piece[size:], is_odd=not size)

    def _is_worth(self, piece: bytes) -> bool:
        """Whether compiled code is quicker for what came from one connection alone."""
        return piece[START] == BATCH_START or piece.count(b'"extFields"') >= self.lane.few

    def _take(self, block: Block, *, is_allowed: bool = False) -> list[int] | None:
        """`take` for these; how many bytes of each piece are done, None where all are. With
        `is_allowed` access control has looked at every request of these pieces already."""
        plain, store = self._plain, self._store
        came = block.senders
        try:
            plain.read(
                block.data, block.ends, store.settings.max_message_bytes, self._text_bytes_max
            )
        except Exception:  # nothing is stored yet, and the common way reads all of it
            log.exception("the reader of plain sends failed")
            plain.forget()  # it may have been in the middle of noting one
            return [0] * len(came)
        if not plain.count:
            return plain.taken
        access, syncer = self._access, self._syncer
        if access is not None and not is_allowed:
            refused = refused_pieces(access, plain, came)
            # What the tables had no room for is read, and has to be checked, once they are emptier.
            is_allowed = plain.taken is None
            if refused:
                return self._without(refused, block, is_allowed=is_allowed)
        if syncer is not None:
            if sum(requests for *_, requests in plain.parts) > syncer.room:
                return [0] * len(came)  # each is refused
            at_once = plain.pieces_with(NO_WAIT)
            if at_once:
                return self._without(at_once, block, is_allowed=is_allowed)
        if plain.forgot != self._forgot:
            self._ways.clear()
            self._forgot = plain.forgot
        now_ms = self._now_ms()
        ways: list[Way] = []
        odd: list[int] = []
        for number, messages, *_ in plain.parts:
            way = self._ways.get(number)
            if way is None or not self._still_goes(way):
                way = self._way(plain.groups[number], messages, now_ms)
                if way is None:
                    odd.append(number)
                    continue
                if not way.is_timed:
                    self._ways[number] = way
            ways.append(way)
        if odd:
            return self._without(plain.pieces_of(odd), block, is_allowed=is_allowed)
        hosts = [connection.host for connection in came]
        courses = [way.course for way in ways]
        if not store.put_plain(plain, courses, hosts, self._records):
            return [0] * len(came)
        counts: dict[int, int] = {}
        self._tell(ways, counts)
        words = {
            number: words_before(way.target.name, self._broker_name, way.slot_ms + 1)
            for way, (number, *_) in zip(ways, plain.parts, strict=True)
            if way.slot_ms
        }
        ends = plain.write_responses(words)
        self._answered = came
        data = plain.answers if syncer is None else plain.answers[: ends[-1]].copy()
        responses = Responses(came, data, ends, counts, self._latency, self._release)
        if syncer is None:
            for answer, requests in counts.items():
                self._latency.answered[answer] += requests
            self._ready.append(responses)
        else:
            syncer.after(store.log_end, responses)
        return plain.taken

    def _still_goes(self, way: Way) -> bool:
        """Whether nothing has changed about a way that is no matter of time."""
        target, queue = way.target, way.course.queue
        return (
            self._topics.targets.get(target.name) is target  # a topic that changes has another one
            and not target.special
            and self._store.plain_queue(way.key) is queue
        )

    def _way(self, group: Group, messages: int, now_ms: int) -> Way | None:
        """What becomes of so many of this group, if nothing about it needs a closer look."""
        target = self._topics.targets.get(group.topic)
        if target is None or target.special or not 0 <= group.queue_id < target.queues:
            return None
        key = own = target.keys[group.queue_id]
        more, slot_ms = self._suffix, 0
        if group.waits:
            waits = f"{group.waits}\x02"
            try:
                placed = self._delivery_policy.placed_all(waits, own, messages, now_ms)
            except Refusal:  # the common way finds it, too, and says so
                return None
            if placed is None:
                return None
            key, text, slot_ms = placed
            if not text.startswith(waits):  # a level over the last one: it is written anew
                return None
            more = text[len(waits) :].encode() + more
        queue = self._store.plain_queue(key)
        if queue is None or (queue.is_schedule and key is own):
            return None
        delay_ms = self._store.settings.delay_levels_ms[key[1]] if queue.is_schedule else -1
        kind = FIFO if group.is_fifo else DELAY if group.waits else NORMAL
        answer = SEND_BATCH_OK if group.is_batch else SEND_V2_OK
        if group.is_oneway:
            answer |= ONEWAY
        course, is_timed = Destination(queue, more, delay_ms), bool(group.waits)
        return Way(target, course, own, slot_ms, is_timed, kind, answer)

    def _tell(self, ways: list[Way], counts: dict[int, int]) -> None:
        """Count the messages in the metrics, and the requests in `counts`; wake who waits."""
        plain, parked = self._plain, self._long_polls.parked
        for (target, course, key, _, _, kind, answer), part in zip(ways, plain.parts, strict=True):
            number, messages, came, largest, requests = part
            topic, puts = course.queue.topic, target.puts
            if topic != target.name:  # its own has it only once its time has come
                puts = self._stats.puts(topic)
            elif key in parked:
                self._long_polls.mark(key)
            extra = course.queue.fixed_bytes + len(course.more)
            sizes = self._sizes(number) if self._records.extra_bytes else None
            size = sum(sizes) if sizes else came + messages * extra
            for counter in (puts, puts.total):
                counter.messages += messages
                counter.bytes += size
            counts[answer] = counts.get(answer, 0) + requests
            is_small = (max(sizes) if sizes else largest + extra) <= SMALL_BYTES
            if kind is NORMAL and requests == messages and is_small:
                continue
            if requests != messages:
                puts.arrivals.note_batches(kind, requests, messages, size)
            elif not is_small:
                puts.arrivals.note_all(kind, messages, size, sizes or self._sizes(number))
            else:
                puts.arrivals.note_all(kind, messages, size)
        if any(way.slot_ms for way in ways):
            self._tell_timers(ways)

    def _sizes(self, number: int) -> list[int]:
        """How large each message of the group with this number is in the log."""
        sends = self._plain.sends[: self._plain.count]
        sizes: list[int] = sends["size"][sends["group"] == number].tolist()
        return sizes

    def _tell_timers(self, ways: list[Way]) -> None:
        plain = self._plain
        by_number = {number: way for way, (number, *_) in zip(ways, plain.parts, strict=True)}
        slots = np.zeros(len(plain.groups), np.int64)
        for number, way in by_number.items():
            slots[number] = way.slot_ms
        sends = plain.sends[: plain.count]
        sends = sends[slots[sends["group"]] > 0]
        numbers = np.empty((len(sends), 4), np.int64)
        for column, name in enumerate(("queue_offset", "log_offset", "size")):
            numbers[:, column] = sends[name]
        numbers[:, 3] = slots[sends["group"]]
        names = [by_number[number].target.name for number in sends["group"].tolist()]
        self._delivery_policy.came_in(numbers.ravel().tolist(), names)

    def _without(self, left_out: set[int], block: Block, *, is_allowed: bool) -> list[int]:
        """`_take` without these pieces."""
        pieces = block.pieces()
        taken = [0] * len(pieces)
        kept = [number for number in range(len(pieces)) if number not in left_out]
        if kept:
            rest = [pieces[at] for at in kept]
            done = self._take(
                block_of([block.senders[at] for at in kept], rest), is_allowed=is_allowed
            )
            for number, size in zip(kept, done or map(len, rest), strict=True):
                taken[number] = size
        return taken

    def _release(self, responses: Responses) -> None:
        """What these responses say has become true: they go out at the end of this iteration."""
        self._ready.append(responses)
        self.lane.answered += responses.receivers
        self._scheduler.plan_end()

    def _write(self) -> None:
        """Write the responses that are ready."""
        ready, self._ready = self._ready, []
        for responses in ready:
            receivers, data, ends = responses.receivers, responses.data, responses.ends
            fds = np.array(writable_fds(receivers), np.int64)
            written = np.empty(len(receivers), np.int64)
            if write_all(fds, data.ctypes.data, ends, written) == ends[-1]:
                continue
            start = 0
            sizes = written.tolist()
            for connection, end, size in zip(receivers, ends.tolist(), sizes, strict=True):
                if start + size < end:
                    connection.write_later(data[start + size : end].tobytes())
                start = end

    def _drop(self) -> None:
        """Forget the responses that are ready: the store failed, and their connections close."""
        self._ready = []
