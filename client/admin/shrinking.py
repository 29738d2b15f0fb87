"""Taking queues away from a topic, without losing what is in them.

First the topic takes messages in fewer queues, while all are read as before. Once every group has
read the queues that go to their end, the topic is read in fewer queues, too. A producer sends by
its old route for up to 30 s and is served meanwhile, so the second step waits at least that long.
Messages that come in between the last check and the second step are noticed after that step: then
all queues are read again, and the wait goes on.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.bodies.stats import TopicStatsTable
from ...protocol.bodies.topic import TopicConfig
from ...protocol.headers.offsets import OffsetResponse, QueueAddress
from ...protocol.headers.topics import TopicName, UpdateTopic
from ..base.concurrent import each
from ..base.responses import header_of
from ..errors import BrokerError, ClientError
from .groups import GroupAdmin
from .topics import TopicAdmin

# Clients ask for routes every 30 s, and send by the old route until then.
ROUTES_RENEWED_SECONDS = 35.0
CHECK_SECONDS = 2.0

BROADCASTING = "BROADCASTING"


class Unread(NamedTuple):
    """Messages in the queues that go, which `group` has not read; "" where no group reads the
    topic, or has read it. `members` are those that read the topic now."""

    group: str
    members: int
    messages: int

    def __str__(self) -> str:
        count = "1 message" if self.messages == 1 else f"{self.messages} messages"
        if not self.group:
            return f"{count} that no group reads"
        members = "1 member" if self.members == 1 else f"{self.members} members"
        return f"{count} of group {self.group} ({members if self.members else 'no member'})"


Bounds = Mapping[MessageQueue, tuple[int, int]]  # the first and the next offset of queues that go
OnCheck = Callable[[list[Unread]], None]


class ShrinkAdmin(TopicAdmin, GroupAdmin):
    """The call that takes queues away from a topic."""

    async def shrink_topic(
        self,
        topic: str,
        queues: int,
        *,
        force: bool = False,
        settle_s: float = ROUTES_RENEWED_SECONDS,
        look_s: float = CHECK_SECONDS,
        timeout_s: float | None = None,
        looked: OnCheck | None = None,
    ) -> None:
        """Leave `topic` with `queues` queues per broker, once the other queues are read.

        At once the topic takes messages in `queues` queues only. The number of queues that are read
        follows when each group that reads the topic, or has read it, is at the end of the others,
        and at the earliest after `settle_s`. Every `look_s` the messages that are not read are
        measured, and `looked` is called with them. With `force` those that no group reads don't
        count.

        ClientError when the topic can't shrink to this number, with nothing changed, and when
        `timeout_s` is over: then all queues are still read, and the same call goes on. Times are in
        seconds.
        """
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        masters, configs = await self._shrinkable(topic, queues)
        old = {name: _queues_of(config) for name, config in configs.items()}
        _, unread = await self._measure(topic, queues, masters)
        if not force and any(not one.group for one in unread):
            raise ClientError(
                f"no group reads topic {topic} or has read it: its {unread[0].messages} messages "
                f"in the queues from {queues} on would be out of reach; have them read first, or "
                "force it (--force)"
            )
        await self._set_queues(masters, configs, dict.fromkeys(configs, queues), old)
        routes_renewed = asyncio.get_running_loop().time() + settle_s
        while True:
            now = asyncio.get_running_loop().time()
            bounds, unread = await self._measure(topic, queues, masters)
            keeping = [one for one in unread if one.group or not force]
            if looked is not None:
                looked(keeping)
            if not keeping and now >= routes_renewed:
                if await self._lower(masters, configs, queues, bounds):
                    return
            elif deadline is not None and now >= deadline:
                raise _too_late(topic, queues, timeout_s, keeping, old)
            await asyncio.sleep(look_s)

    # --- steps ----------------------------------------------------------------------------------

    async def _shrinkable(
        self, topic: str, queues: int
    ) -> tuple[dict[str, str], dict[str, TopicConfig]]:
        """The masters with a topic that has more queues, and its settings, by broker name;
        ClientError when there is a reason to change nothing."""
        if queues < 1:
            raise ClientError(f"queues is {queues}; give 1 or more")
        route = await self.route(topic)
        configs = await self.topic_config(topic)
        _check_route(topic, queues, route)
        has = ", ".join(f"{_text(one)} on {name}" for name, one in sorted(configs.items()))
        least = min(one.write_queue_nums for one in configs.values())
        if queues > least:
            raise ClientError(
                f"topic {topic} has {has}, and {queues} is not less; give a smaller number, 1 or "
                "more (`aerobee topics create` gives it more queues)"
            )
        more = {name: one for name, one in configs.items() if _queues_of(one) > queues}
        if not more:
            raise ClientError(
                f"topic {topic} has {has} already, and {queues} is not less; give a smaller number"
            )
        addresses = await self._masters_of(topic)
        return {name: addresses[name] for name in more}, more

    async def _set_queues(
        self,
        masters: Mapping[str, str],
        configs: Mapping[str, TopicConfig],
        writes: Mapping[str, int],
        reads: Mapping[str, int],
    ) -> None:
        """Set both numbers of queues on each master; all else stays as `configs` say."""
        for name, config in configs.items():
            header = UpdateTopic(
                config.topic_name or "",
                reads[name],
                writes[name],
                config.perm,
                config.topic_filter_type,
                sys_flag=config.topic_sys_flag,
                order=config.order,
            )
            await self._ask(masters[name], codes.UPDATE_AND_CREATE_TOPIC, header)

    async def _lower(
        self,
        masters: Mapping[str, str],
        configs: Mapping[str, TopicConfig],
        queues: int,
        bounds: Bounds,
    ) -> bool:
        """Have the topic read in `queues` queues. False, with all as before, if one of the others
        took a message since `bounds`; from now on none can."""
        writes = dict.fromkeys(configs, queues)
        await self._set_queues(masters, configs, writes, writes)

        async def end(queue: MessageQueue) -> int:
            code, header = codes.GET_MAX_OFFSET, QueueAddress(queue.topic, queue.queue_id)
            answer = await self._ask(masters[queue.broker_name], code, header)
            return header_of(answer, OffsetResponse, code).offset

        ends = await each(bounds, end)
        if all(now <= most for now, (_, most) in zip(ends, bounds.values(), strict=True)):
            return True
        old = {name: _queues_of(config) for name, config in configs.items()}
        await self._set_queues(masters, configs, writes, old)
        return False

    # --- what is unread -------------------------------------------------------------------------

    async def _measure(
        self, topic: str, queues: int, masters: Mapping[str, str]
    ) -> tuple[Bounds, list[Unread]]:
        """The bounds of the queues that go, and what keeps them, by group."""
        bounds = await self._bounds_of(topic, queues, masters)
        stored = sum(most - least for least, most in bounds.values())
        if not stored:
            return bounds, []
        groups = await self.groups_of_topic(topic)
        if not groups:
            return bounds, [Unread("", 0, stored)]
        offsets = {
            name: (await self.all_offsets(address)).offset_table
            for name, address in masters.items()
        }

        async def unread_of(group: str) -> Unread:
            key = f"{topic}@{group}"
            done = {
                queue: offsets[queue.broker_name].get(key, {}).get(queue.queue_id, 0)
                for queue in bounds
            }
            return await self._unread(group, topic, bounds, done)

        found = await each(groups, unread_of)
        return bounds, [one for one in found if one.messages]

    async def _bounds_of(self, topic: str, queues: int, masters: Mapping[str, str]) -> Bounds:
        code, header = codes.GET_TOPIC_STATS_INFO, TopicName(topic)
        found: dict[MessageQueue, tuple[int, int]] = {}
        for answer in (await self._bodies(masters, code, TopicStatsTable, header)).values():
            for queue, one in sorted(answer.offset_table.items()):
                if queue.queue_id >= queues:
                    least = max(0, one.min_offset)
                    found[queue] = least, max(least, one.max_offset)
        return found

    async def _unread(
        self, group: str, topic: str, bounds: Bounds, done: Mapping[MessageQueue, int]
    ) -> Unread:
        """The messages that a group has not read; `done` are its offsets at the brokers.

        A broadcasting group has no offsets there. Its members are asked: the one furthest behind
        counts, and a member that does not answer counts as having read nothing.
        """
        online = await self.consumer_connection(group)
        if online is None or topic not in online.subscription_table:
            return Unread(group, 0, _behind(bounds, done))
        members = len(online.connection_set)
        if online.message_model != BROADCASTING:
            return Unread(group, members, _behind(bounds, done))
        try:
            places = list((await self.member_offsets(group, topic)).values())
        except BrokerError as wrong:
            if wrong.code != codes.SYSTEM_ERROR:  # that is: they left just now, or are too old
                raise
            places = []
        if len(places) < members:
            places.append({})
        return Unread(group, members, max(_behind(bounds, place) for place in places))


def _behind(bounds: Bounds, done: Mapping[MessageQueue, int]) -> int:
    """Messages from the offsets in `done` on; from the first one where there is no offset."""
    return sum(
        max(0, most - max(least, done.get(queue, 0))) for queue, (least, most) in bounds.items()
    )


def _check_route(topic: str, queues: int, route: TopicRouteData) -> None:
    """ClientError for a topic whose number of queues is not in its settings alone."""
    without = sorted(
        one.broker_name or "" for one in route.broker_datas if MASTER_ID not in one.broker_addrs
    )
    if without:
        raise ClientError(
            f"topic {topic} is on {', '.join(without)}, which has no master now, so it can't be "
            "changed there; start the master first"
        )
    if route.topic_queue_mapping_by_broker:
        raise ClientError(
            f"topic {topic} is static: its queues are mapped to those of its brokers; the mapping "
            "can't shrink, make another topic"
        )
    if route.order_topic_conf:
        raise ClientError(
            f"producers of topic {topic} go by its order configuration {route.order_topic_conf!r}, "
            f"whatever its number of queues is; give it at most {queues} queues a broker, or take "
            "it away (mqadmin updateOrderConf), then shrink the topic"
        )


def _queues_of(config: TopicConfig) -> int:
    """The number of queues that may have messages, which is what is read in the meantime."""
    return max(config.read_queue_nums, config.write_queue_nums)


def _text(config: TopicConfig) -> str:
    if config.read_queue_nums == config.write_queue_nums:
        return f"{config.write_queue_nums} queues"
    return f"{config.write_queue_nums} queues to write, {config.read_queue_nums} to read"


def _too_late(
    topic: str,
    queues: int,
    timeout_s: float | None,
    keeping: Iterable[Unread],
    old: Mapping[str, int],
) -> ClientError:
    left = ", ".join(map(str, keeping)) or "producers may have an old route still"
    return ClientError(
        f"topic {topic} is not ready within {timeout_s:g} s: {left}, in the queues from {queues} "
        f"on; it takes messages in {queues} queues and is read in {max(old.values())}, and the "
        "same again goes on"
    )
