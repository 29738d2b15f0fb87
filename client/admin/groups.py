"""Consumer groups: their settings, members and progress; and the groups of producers."""

from collections.abc import Mapping

from ...protocol import codes
from ...protocol.bodies.assignment import SetMessageRequestModeRequestBody
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.clients import (
    ConsumerConnection,
    ProducerConnection,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from ...protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from ...protocol.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from ...protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from ...protocol.bodies.stats import ConsumeStats
from ...protocol.bodies.summaries import GroupSummaries
from ...protocol.bodies.topic import TopicList
from ...protocol.headers.admin import ConsumerStatus, ResetOffset
from ...protocol.headers.clients import ConsumeMessageDirectly, ConsumerGroup, ProducerGroup
from ...protocol.headers.clients import ConsumerRunningInfo as RunningInfoHeader
from ...protocol.headers.groups import (
    CloneGroupOffset,
    DeleteGroup,
    GroupName,
    GroupTopic,
    SummaryPage,
)
from ...protocol.headers.groups import ConsumeStats as ConsumeStatsHeader
from ...protocol.headers.offsets import UpdateConsumerOffset
from ..errors import ClientError, NoRouteError
from .base import Asking

NOW = -1  # the timestamp that means the end of a queue
AWAY = (codes.CONSUMER_NOT_ONLINE,)
NOT_THERE = (codes.CONSUMER_NOT_ONLINE, codes.SYSTEM_ERROR)  # of one member


class GroupAdmin(Asking):
    """The calls about groups."""

    async def groups(self) -> dict[str, SubscriptionGroupWrapper]:
        """The consumer groups that each master keeps, by broker name."""
        code = codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return await self._bodies(await self.masters(), code, SubscriptionGroupWrapper)

    async def update_group(self, config: SubscriptionGroupConfig) -> None:
        """Make a consumer group or replace its settings on every master."""
        body = config.encode()
        masters = await self.masters()
        await self._ask_each(masters, codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def delete_group(self, group: str, *, clean_offsets: bool = False) -> None:
        """Delete a consumer group, and with `clean_offsets` its progress, on every master."""
        header = DeleteGroup(group, clean_offsets)
        await self._ask_each(await self.masters(), codes.DELETE_SUBSCRIPTIONGROUP, header)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """The offsets of `group` in each queue: of one topic, or of all that it has read."""
        found = ConsumeStats()
        header = ConsumeStatsHeader(group, topic)
        code, masters = codes.GET_CONSUME_STATS, await self.masters()
        for part in (await self._bodies(masters, code, ConsumeStats, header)).values():
            for each in part.offset_table.values():
                # Below 0 in a queue of a static topic in which the group has not got a progress.
                each.consumer_offset = max(0, each.consumer_offset)
            found.offset_table.update(part.offset_table)
            found.consume_tps += part.consume_tps
        return found

    async def consumer_connection(self, group: str) -> ConsumerConnection | None:
        """The members of `group` and their subscriptions; None when no broker has a member."""
        code, header = codes.GET_CONSUMER_CONNECTION_LIST, ConsumerGroup(group)
        doing = f"list members of {group}"
        return await self._body_of_master(code, ConsumerConnection, header, AWAY, doing)

    async def producer_connection(self, group: str) -> ProducerConnection | None:
        """The members of a group of producers; None when no broker has one."""
        code, header = codes.GET_PRODUCER_CONNECTION_LIST, ProducerGroup(group)
        missing, doing = (codes.SYSTEM_ERROR,), f"list {group}"
        return await self._body_of_master(code, ProducerConnection, header, missing, doing)

    async def producers(self, address: str) -> ProducerTableInfo:
        """All producers that are connected to one broker."""
        return await self._body(address, codes.GET_ALL_PRODUCER_INFO, ProducerTableInfo)

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """The settings of a group on each master, by broker name."""
        code, masters = codes.GET_SUBSCRIPTIONGROUP_CONFIG, await self.masters()
        return await self._bodies(masters, code, SubscriptionGroupConfig, GroupName(group))

    async def group_summaries(
        self, address: str, after: str = "", count: int = 200
    ) -> GroupSummaries | None:
        """A page, of up to 1,000 rows, of what a broker tells of all its groups; None where it does
        not know this request, which only aerobee's brokers do."""
        code, header = codes.GET_GROUP_SUMMARIES, SummaryPage(after, count)
        return await self._body_if_known(address, code, GroupSummaries, header)

    async def topics_of_group(self, group: str) -> list[str]:
        """The topics that a group reads or has read, sorted."""
        code, masters = codes.QUERY_TOPICS_BY_CONSUMER, await self.masters()
        answers = await self._bodies(masters, code, TopicList, GroupName(group))
        return sorted({topic for answer in answers.values() for topic in answer.topic_list})

    async def subscription(self, group: str, topic: str) -> QuerySubscriptionResponseBody:
        """A group's subscription to a topic, as the first master knows it."""
        code, kind = codes.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionResponseBody
        doing = f"subscription of {group}"
        found = await self._body_of_master(code, kind, GroupTopic(group, topic), (), doing)
        assert found is not None
        return found

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """The running info of a member: its queues and counters, with `stacks` also thread
        stacks."""
        code = codes.GET_CONSUMER_RUNNING_INFO
        header = RunningInfoHeader(group, client_id, stacks)
        doing = f"ask {client_id}"
        found = await self._body_of_master(code, ConsumerRunningInfo, header, NOT_THERE, doing)
        if found is None:
            raise NoRouteError(f"no broker has a member {client_id} of group {group}")
        return found

    async def consume_directly(
        self, group: str, client_id: str, msg_id: str, topic: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume a stored message at once; `msg_id` is its offset message id."""
        code, kind = codes.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResult
        header = ConsumeMessageDirectly(group, client_id, msg_id, topic=topic)
        doing = f"have {client_id} consume {msg_id}"
        found = await self._body_of_master(code, kind, header, NOT_THERE, doing)
        if found is None:
            raise NoRouteError(f"no broker has a member {client_id} of group {group}")
        return found

    # --- progress -------------------------------------------------------------------------------

    async def reset_offsets(
        self, group: str, topic: str, ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset a group's offsets in a topic to a timestamp (ms; `NOW`: the end). Returns the new
        offset of each queue.

        Without `force` no offset moves forward. Connected members are notified.
        """
        code, addresses = codes.INVOKE_BROKER_TO_RESET_OFFSET, await self._masters_of(topic)
        header = ResetOffset(group, topic, ms, force)
        answers = await self._bodies(addresses, code, ResetOffsetBody, header)
        return {
            queue: offset
            for answer in answers.values()
            for queue, offset in answer.offset_table.items()
        }

    async def skip_accumulated(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Set a group's offsets to the end of a topic; waiting messages are skipped."""
        return await self.reset_offsets(group, topic, NOW)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in one queue. ClientError for a negative one."""
        if offset < 0:
            raise ClientError(f"offset is {offset}; give 0 or more")
        addresses = await self._masters_of(queue.topic)
        await self._open().route(queue.topic)
        leader = self._open().leader_of(queue)
        if leader not in addresses:
            raise ClientError(f"topic {queue.topic} is not on a broker {leader}")
        header = UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)
        address = addresses[leader]
        await self._ask(address, codes.UPDATE_CONSUMER_OFFSET, header)

    async def clone_offsets(self, source: str, target: str, topic: str | None = None) -> None:
        """Give one group the offsets of another, in one topic or in all."""
        header = CloneGroupOffset(source, target, topic)
        await self._ask_each(await self.masters(), codes.CLONE_GROUP_OFFSET, header)

    async def all_offsets(self, address: str) -> ConsumerOffsetSerializeWrapper:
        """All offsets that one broker keeps."""
        code = codes.GET_ALL_CONSUMER_OFFSET
        return await self._body(address, code, ConsumerOffsetSerializeWrapper)

    async def member_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, Mapping[MessageQueue, int]]:
        """The offsets that the members themselves report, by client id."""
        code, addresses = codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, await self._masters_of(topic)
        found: dict[str, Mapping[MessageQueue, int]] = {}
        header = ConsumerStatus(topic, group, client_id)
        for answer in (await self._bodies(addresses, code, GetConsumerStatusBody, header)).values():
            found.update(answer.consumer_table)
        return found

    async def set_request_mode(
        self, group: str, topic: str, mode: str = "POP", *, pop_share_queues: int = 0
    ) -> None:
        """Set how a group's clients read a topic: "PULL" or "POP", with the number of members that
        share a queue."""
        if mode not in ("PULL", "POP"):
            raise ClientError(f"mode is {mode!r}; give PULL or POP")
        body = SetMessageRequestModeRequestBody(topic, group, mode, pop_share_queues).encode()
        await self._ask_each(await self.masters(), codes.SET_MESSAGE_REQUEST_MODE, body=body)
