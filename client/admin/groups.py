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
from ..base.responses import body_of
from ..errors import ClientError, NoRouteError
from .base import Asking

NOW = -1  # the timestamp that means the end of a queue
AWAY = (codes.CONSUMER_NOT_ONLINE,)
NOT_THERE = (codes.CONSUMER_NOT_ONLINE, codes.SYSTEM_ERROR)  # of one member


class GroupAdmin(Asking):
    """The calls about groups."""

    async def groups(self) -> dict[str, SubscriptionGroupWrapper]:
        """The consumer groups that each master keeps, by broker name."""
        masters = await self.masters()
        code = codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await self._ask_each(masters, code)
        return {
            name: body_of(answer, SubscriptionGroupWrapper, code)
            for name, answer in zip(masters, answers, strict=True)
        }

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
        """How far `group` is in each queue, in one topic or in all that it has read."""
        found = ConsumeStats()
        header = ConsumeStatsHeader(group, topic)
        masters = await self.masters()
        for answer in await self._ask_each(masters, codes.GET_CONSUME_STATS, header):
            part = body_of(answer, ConsumeStats, codes.GET_CONSUME_STATS)
            for each in part.offset_table.values():
                # Below 0 in a queue of a static topic in which the group has not got a progress.
                each.consumer_offset = max(0, each.consumer_offset)
            found.offset_table.update(part.offset_table)
            found.consume_tps += part.consume_tps
        return found

    async def consumer_connection(self, group: str) -> ConsumerConnection | None:
        """The members of `group` and their subscriptions; None when no broker has a member."""
        code = codes.GET_CONSUMER_CONNECTION_LIST
        answer = await self._ask_any(code, ConsumerGroup(group), AWAY, f"list members of {group}")
        return None if answer is None else body_of(answer, ConsumerConnection, code)

    async def producer_connection(self, group: str) -> ProducerConnection | None:
        """The members of a group of producers; None when no broker has one."""
        code, missing = codes.GET_PRODUCER_CONNECTION_LIST, (codes.SYSTEM_ERROR,)
        answer = await self._ask_any(code, ProducerGroup(group), missing, f"list {group}")
        return None if answer is None else body_of(answer, ProducerConnection, code)

    async def producers(self, address: str) -> ProducerTableInfo:
        """All producers that are connected to one broker."""
        code = codes.GET_ALL_PRODUCER_INFO
        return body_of(await self._ask(address, code), ProducerTableInfo, code)

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """The settings of a group on each master, by broker name."""
        code, masters = codes.GET_SUBSCRIPTIONGROUP_CONFIG, await self.masters()
        answers = await self._ask_each(masters, code, GroupName(group))
        return {
            name: body_of(answer, SubscriptionGroupConfig, code)
            for name, answer in zip(masters, answers, strict=True)
        }

    async def group_summaries(
        self, address: str, after: str = "", count: int = 200
    ) -> GroupSummaries | None:
        """A page, of up to 1,000 rows, of what a broker tells of all its groups; None where it does
        not know this request, which only aerobee's brokers do."""
        code = codes.GET_GROUP_SUMMARIES
        answer = await self._ask_known(address, code, SummaryPage(after, count))
        return None if answer is None else body_of(answer, GroupSummaries, code)

    async def topics_of_group(self, group: str) -> list[str]:
        """The topics that a group reads or has read, sorted."""
        code = codes.QUERY_TOPICS_BY_CONSUMER
        found: set[str] = set()
        for answer in await self._ask_each(await self.masters(), code, GroupName(group)):
            found.update(body_of(answer, TopicList, code).topic_list)
        return sorted(found)

    async def subscription(self, group: str, topic: str) -> QuerySubscriptionResponseBody:
        """A group's subscription to a topic, as the first master knows it."""
        code = codes.QUERY_SUBSCRIPTION_BY_CONSUMER
        answer = await self._ask_any(code, GroupTopic(group, topic), (), f"subscription of {group}")
        assert answer is not None
        return body_of(answer, QuerySubscriptionResponseBody, code)

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        """The running info of a member: its queues and counters, with `stacks` also thread
        stacks."""
        code = codes.GET_CONSUMER_RUNNING_INFO
        header = RunningInfoHeader(group, client_id, stacks)
        answer = await self._ask_any(code, header, NOT_THERE, f"ask {client_id}")
        if answer is None:
            raise NoRouteError(f"no broker has a member {client_id} of group {group}")
        return body_of(answer, ConsumerRunningInfo, code)

    async def consume_directly(
        self, group: str, client_id: str, msg_id: str, topic: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume a stored message at once; `msg_id` is its offset message id."""
        code = codes.CONSUME_MESSAGE_DIRECTLY
        header = ConsumeMessageDirectly(group, client_id, msg_id, topic=topic)
        doing = f"have {client_id} consume {msg_id}"
        answer = await self._ask_any(code, header, NOT_THERE, doing)
        if answer is None:
            raise NoRouteError(f"no broker has a member {client_id} of group {group}")
        return body_of(answer, ConsumeMessageDirectlyResult, code)

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
        found: dict[MessageQueue, int] = {}
        for answer in await self._ask_each(addresses, code, header):
            found.update(body_of(answer, ResetOffsetBody, code).offset_table)
        return found

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
        return body_of(await self._ask(address, code), ConsumerOffsetSerializeWrapper, code)

    async def member_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, Mapping[MessageQueue, int]]:
        """How far the members are by their own account, by client id."""
        code, addresses = codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, await self._masters_of(topic)
        found: dict[str, Mapping[MessageQueue, int]] = {}
        header = ConsumerStatus(topic, group, client_id)
        for answer in await self._ask_each(addresses, code, header):
            found.update(body_of(answer, GetConsumerStatusBody, code).consumer_table)
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
