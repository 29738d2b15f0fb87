"""A pop: the request, and the response decoded into messages with handles.

A broker drops a pop that is older than the client's timeout, comparing the clocks of both. With a
slow clock a client would never get a message, so its next pops to that broker carry no timestamp.

A handle (POP_CK) identifies a popped message and says until when it is invisible. Brokers put it
into redelivered messages; for all others it is built here from the response header.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.errors import Malformed
from ...protocol.headers.pop import PopMessage, PopMessageResponse
from ...protocol.message import pop_handles
from ...protocol.message import properties as props
from ...protocol.message.batch import unwrap
from ...protocol.message.record import Record, decode_all
from ..base.identity import monotonic, now_ms
from ..base.responses import header_of
from ..cluster.cluster import Cluster
from ..errors import BrokerError, ClientError
from ..group.consume_stats import TopicStats
from ..group.process_queue import Limits, ProcessQueue

log = logging.getLogger(__name__)

ALL_QUEUES = -1
ANSWER_SECONDS = 10.0  # beyond the time that the broker may wait
NOTHING = (codes.POLLING_TIMEOUT, codes.PULL_NOT_FOUND)
TOO_OLD = "timeout too much"  # in the remark of a broker that dropped a pop for its age
CLOCKS_AHEAD_MAX = 1_024  # brokers that are remembered for it
NO_TIME = 0  # born time of a pop: the broker uses its own clock


@dataclass(frozen=True, slots=True)
class Popped:
    """One message of a pop: its record, its process queue, its handle, earlier deliveries.

    It arrived at `came_at` (monotonic clock, seconds). `is_wanted` is false if only the hash of its
    tag matches.
    """

    record: Record
    process_queue: ProcessQueue
    handle: str
    times: int
    came_at: float
    is_wanted: bool = True


async def pop(
    cluster: Cluster,
    group: str,
    topic: str,
    broker_name: str,
    wanted: SubscriptionData,
    *,
    max_messages: int,
    invisible_ms: int,
    poll_ms: int,
    from_start: bool,
    namespace: str = "",
    queue_id: int = ALL_QUEUES,
    process_queues: dict[int, ProcessQueue] | None = None,
    stats: TopicStats | None = None,
) -> list[Popped]:
    """Messages of all queues of a topic on one broker (or of one queue), none after `poll_ms`.

    `process_queues` maps queue ids to process queues; missing ones are added to it. BrokerError for
    any response but "found" and "nothing", such as POLLING_FULL: too many pops wait.
    """
    address = cluster.address_of(broker_name)
    header = PopMessage(
        group,
        topic,
        queue_id,
        max_messages,
        invisible_ms,
        poll_ms,
        0 if from_start else 1,
        NO_TIME if address in cluster.clocks_ahead else now_ms(),
        wanted.expression_type,
        wanted.sub_string,
    )
    code, timeout_s = codes.POP_MESSAGE, poll_ms / 1000 + ANSWER_SECONDS
    answer = await cluster.request(address, code, header, timeout_s=timeout_s)
    if answer.code in NOTHING:
        if TOO_OLD in (answer.remark or ""):
            _note_clock_ahead(cluster, address, answer.remark or "")
        return []
    if answer.code != codes.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address, f"pop topic {topic}")
    infos = header_of(answer, PopMessageResponse, code)
    try:
        records = [inner for each in decode_all(answer.body or b"") for inner in unwrap(each)]
        handle_of = _handles(infos, broker_name)
        tags = {tag.encode() for tag in wanted.tags_set}
        process_queues = {} if process_queues is None else process_queues
        found, came_at = [], monotonic()
        for record in records:
            # Brokers compare hashes of tags; two tags may have the same hash.
            wants = not tags or props.find(record.raw_properties, b"TAGS") in tags
            process_queue = process_queues.get(record.queue_id)
            if process_queue is None:
                queue = MessageQueue(topic, broker_name, record.queue_id)
                process_queue = ProcessQueue(queue, record.queue_offset, Limits(), stats, namespace)
                process_queues[record.queue_id] = process_queue
            times = max(record.reconsume_times, _count(infos, record))
            found.append(Popped(record, process_queue, handle_of(record), times, came_at, wants))
        return found
    except (Malformed, ValueError) as wrong:
        raise ClientError(f"the messages that {address} gave can't be read: {wrong}") from wrong


def _note_clock_ahead(cluster: Cluster, address: str, remark: str) -> None:
    """The next pops to this broker bear no time. Said once for each broker."""
    if address in cluster.clocks_ahead or len(cluster.clocks_ahead) >= CLOCKS_AHEAD_MAX:
        return
    cluster.clocks_ahead.add(address)
    log.warning(
        "broker %s dropped a pop as too old: %s. The clock of this machine is behind that of the "
        "broker, or the broker is overloaded; synchronize the clocks (NTP). From now on pops to "
        "this broker bear no time, so messages come all the same",
        address,
        " ".join(remark.split()),
    )


def _handles(infos: PopMessageResponse, broker_name: str) -> Callable[[Record], str]:
    starts = pop_handles.entries_of(infos.start_offset_info)

    def handle_of(record: Record) -> str:
        inside = props.find(record.raw_properties, b"POP_CK")
        if inside is not None:
            return inside.decode(errors="replace")
        retry = pop_handles.retry_flag(record.topic)
        start = starts.get((retry, str(record.queue_id)))
        return pop_handles.handle(
            record.queue_offset if start is None else int(start),
            infos.pop_ms,
            infos.invisible_ms,
            infos.revive_queue_id,
            retry,
            broker_name,
            record.queue_id,
            record.queue_offset,
        )

    return handle_of


def _count(infos: PopMessageResponse, record: Record) -> int:
    """The number of earlier pops of a message in order."""
    counts = pop_handles.entries_of(infos.order_count_info)
    retry = pop_handles.retry_flag(record.topic)
    found = counts.get((retry, f"qo{record.queue_id}%{record.queue_offset}"))
    return int(found or counts.get((retry, str(record.queue_id))) or 0)
