"""A cluster of RocketMQ or aerobee as the source of a mirror."""

import re
from collections.abc import Callable, Mapping

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.topic import TopicConfig
from ...protocol.message import properties as props
from ...protocol.message.batch import unwrap_all
from ...protocol.message.record import (
    COMPRESSED,
    COMPRESSION_MASK,
    MULTI_TAGS,
    Record,
    decode_all,
)
from ...protocol.names import is_system_topic
from ..base.start_from import FIRST, LAST, StartFrom
from ..errors import ClientError
from ..group.process_queue import name_of
from .origin import PROPERTY
from .side import Side
from .source import Copyable, Found, Source

PULL_MESSAGES = 1_024
KEPT_FLAGS = COMPRESSED | COMPRESSION_MASK | MULTI_TAGS  # of the system flag
# A broker acts on these, or writes them: what they asked for has been done at the source.
DROPPED = (
    props.TRAN_MSG,
    props.DELAY,
    props.REAL_TOPIC,
    props.REAL_QID,
    props.POP_CK,
    props.CRC32,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELAY_MS,
    props.TIMER_DELIVER_MS,
    props.TIMER_DEL_UNIQKEY,
)
_MAY_BE_DROPPED = re.compile("|".join(map(re.escape, (*DROPPED, PROPERTY))).encode())


class RocketMQSource(Source):
    """Reads through `side`, which it starts and closes. Copies of other mirrors are left out unless
    `relay`. The mirror's progress is that of `group`."""

    def __init__(self, side: Side, group: str, *, relay: bool = False) -> None:
        self._side = side
        self._group = group
        self._relay = relay
        self._commits = False  # the group of the mirror is known to the brokers

    async def start(self) -> None:
        await self._side.start()

    async def close(self) -> None:
        await self._side.close()

    async def name(self) -> str:
        tables = (await self._side.cluster_info()).cluster_addr_table
        return ",".join(sorted(tables))

    async def addresses(self) -> set[str]:
        return await self._side.addresses()

    async def topics(self) -> list[str]:
        clusters = (await self._side.cluster_info()).cluster_addr_table
        # A cluster and a broker have a topic each.
        own = {*clusters, *(name for names in clusters.values() for name in names)}
        names = await self._side.topics()
        return [name for name in names if name not in own and not is_system_topic(name)]

    async def settings(self, topic: str) -> TopicConfig:
        return next(iter((await self._side.topic_config(topic)).values()))

    async def queues(self, topic: str) -> list[MessageQueue]:
        return await self._side.queues(topic)

    async def ends(self, queues: list[MessageQueue]) -> Mapping[MessageQueue, int]:
        table = (await self._side.topic_stats(queues[0].topic)).offset_table
        found = {}
        for queue in queues:
            stats = table.get(queue)
            # The queues of a static topic are not in the table.
            found[queue] = stats.max_offset if stats else await self._side.max_offset(queue)
        return found

    async def first_offset(self, queue: MessageQueue, start: StartFrom, *, is_new: bool) -> int:
        committed = None if is_new else await self._side.committed(self._group, queue)
        if committed is not None:
            return committed
        if start.where == FIRST:
            return await self._side.min_offset(queue)
        if start.where == LAST:
            return await self._side.max_offset(queue)
        return await self._side.offset_at(queue, start.ms)

    async def read(self, queue: MessageQueue, offset: int) -> Found:
        pulled = await self._side.pull(queue, offset, PULL_MESSAGES, bulk=True)
        if pulled.code != codes.SUCCESS:
            if pulled.max_offset < offset:
                raise ClientError(
                    f"{name_of(queue)} ends at {pulled.max_offset}, and was copied up to {offset}: "
                    "it has lost messages, or is another topic of this name; delete the topic at "
                    "the target to copy it from its beginning"
                )
            return Found([], max(offset, pulled.next_offset))
        records = [
            _copyable(record)
            for record in unwrap_all(decode_all(pulled.body))
            if record.queue_offset >= offset and (self._relay or not _is_copy(record))
        ]
        return Found(records, max(offset, pulled.next_offset))

    async def groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        found = {}
        for wrapper in (await self._side.groups()).values():
            found.update(wrapper.subscription_group_table)
        return found

    async def offsets(
        self, matches: Callable[[str], bool]
    ) -> Mapping[tuple[str, MessageQueue], int]:
        found = {}
        for broker_name, address in (await self._side.masters()).items():
            for key, offsets in (await self._side.all_offsets(address)).offset_table.items():
                topic, _, group = key.partition("@")
                if matches(group):
                    for queue_id, offset in offsets.items():
                        found[group, MessageQueue(topic, broker_name, queue_id)] = offset
        return found

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        if not self._commits:
            await self._side.update_group(SubscriptionGroupConfig(self._group))
            self._commits = True
        for queue, offset in offsets.items():
            await self._side.commit_for(self._group, queue, offset)


def _is_copy(record: Record) -> bool:
    """True if this message is a mirror's copy: it has the mirror's property."""
    raw = record.raw_properties
    name = PROPERTY.encode()
    return name in raw and props.find(raw, name) is not None


def _copyable(record: Record) -> Copyable:
    raw = record.raw_properties
    if _MAY_BE_DROPPED.search(raw) is not None:
        raw = props.without(raw, *DROPPED, PROPERTY)
    return Copyable(
        record.queue_offset,
        record.born_ms,
        record.store_ms,
        record.body,
        props.ended(raw),
        record.flag,
        record.sys_flag & KEPT_FLAGS,
        record.reconsume_times,
    )
