"""Checks that all members of a group have the same subscription.

RocketMQ keeps one subscription per group, the latest that a member sent, so members that differ
miss messages. The check fetches the members from the broker and their subscriptions from the
members, and logs the differences. It is a hint only: brokers that don't respond are skipped.
"""

import logging
from collections.abc import Iterable, Mapping

from ...protocol import codes
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.running import ConsumerRunningInfo
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.headers.clients import ConsumerGroup
from ...protocol.headers.clients import ConsumerRunningInfo as AskRunningInfo
from ..base.responses import body_of
from ..cluster.cluster import Cluster
from ..errors import AerobeeError

log = logging.getLogger(__name__)

MEMBERS_MAX = 16  # requested concurrently

Wanted = dict[str, tuple[str, str]]  # kind and text of the expression by topic


class SubscriptionCheck:
    """Compares the subscriptions of one group's members each time the members have changed."""

    def __init__(self, cluster: Cluster, group: str, model: str) -> None:
        self._cluster = cluster
        self._group = group
        self._model = model
        self._seen: list[str] = []
        self.is_broken = False  # as far as is known, and the log has it

    async def check(
        self, members: list[str], subscriptions: Mapping[str, SubscriptionData]
    ) -> list[str]:
        """Differences found, one sentence each; they are also logged."""
        if len(members) < 2:
            self.is_broken = False
        if members == self._seen or len(members) < 2:
            return []
        self._seen = members
        try:
            found = await self._differences(members, _wanted(subscriptions.values()))
        except AerobeeError as wrong:
            log.debug("members of group %s can't be compared: %s", self._group, wrong)
            return []
        self.is_broken = bool(found)
        for sentence in found:
            log.warning("%s; give all members of a group the same topics and expressions", sentence)
        return found

    async def _differences(self, members: list[str], mine: Wanted) -> list[str]:
        address = next(iter(self._cluster.masters.values()), None)
        if address is None:
            return []
        code = codes.GET_CONSUMER_CONNECTION_LIST
        answer = await self._cluster.ask(address, code, ConsumerGroup(self._group))
        group = body_of(answer, ConsumerConnection, code)
        found = []
        if group.message_model not in (None, self._model):
            found.append(
                f"group {self._group} is {group.message_model} for its broker, and {self._model} "
                "here"
            )
        if _wanted((group.subscription_table or {}).values()) == mine:
            return found
        for member in [each for each in members if each != self._cluster.client_id][:MEMBERS_MAX]:
            header = AskRunningInfo(self._group, member)
            code = codes.GET_CONSUMER_RUNNING_INFO
            try:
                answer = await self._cluster.ask(address, code, header)
            except AerobeeError:
                continue  # disconnected by now, or too old to respond
            theirs = _wanted(body_of(answer, ConsumerRunningInfo, code).subscription_set)
            if theirs != mine:
                found.append(
                    f"member {member} of group {self._group} wants {_words(theirs)}, this one "
                    f"({self._cluster.client_id}) {_words(mine)}"
                )
        return found


def _wanted(subscriptions: Iterable[SubscriptionData]) -> Wanted:
    return {each.topic: (each.expression_type, each.sub_string) for each in subscriptions}


def _words(wanted: Wanted) -> str:
    return ", ".join(f"{topic}: {text!r}" for topic, (_, text) in sorted(wanted.items()))
