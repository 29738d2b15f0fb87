"""Subscription consistency: do the members of a consumer group subscribe alike?

RocketMQ assumes that they do: the subscriptions of the last heartbeat hold for the whole group,
while each member reads only some of the queues. Where members differ, messages are skipped without
notice. The check keeps the subscriptions of each member's last heartbeat, without retry topics.
"""

import logging
from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.names import RETRY_PREFIX
from ..filters.matching import is_by_tags

TOPICS_SHOWN_MAX = 5  # in a description
CLIENTS_SHOWN_MAX = 3  # for each thing that is wanted
CHARS_SHOWN_MAX = 200  # of an expression
NOT_SUBSCRIBED = "no subscription"

log = logging.getLogger(__name__)


class MemberSubscriptions(NamedTuple):
    """One member's message model, and topic and expression of each of its subscriptions."""

    model: str
    topics: frozenset[tuple[str, str]]


class SubscriptionCheck:
    """The subscriptions of one group's members. `differs` tells whether they disagree."""

    __slots__ = ("_by_member", "_counts", "_group", "differs")

    def __init__(self, group: str) -> None:
        self._group = group
        self._by_member: dict[Hashable, tuple[str, MemberSubscriptions]] = {}
        self._counts: Counter[MemberSubscriptions] = Counter()
        self.differs = False

    def heard(self, key: Hashable, client_id: str, consumer: ConsumerData) -> None:
        """Take over the subscriptions in a member's heartbeat; `key` tells members apart."""
        one = MemberSubscriptions(
            consumer.message_model or "",
            frozenset(
                (data.topic, _expression(data))
                for data in consumer.subscription_data_set
                if not data.topic.startswith(RETRY_PREFIX)
            ),
        )
        known = self._by_member.get(key)
        if known is None or known[1] != one:
            self._forget(key)
            self._by_member[key] = (client_id, one)
            self._counts[one] += 1
            self._judge()

    def left(self, key: Hashable) -> None:
        """Forget a member that has left."""
        self._forget(key)
        self._judge()

    def describe(self) -> str:
        """The differing subscriptions with their members; empty when all agree."""
        if not self.differs:
            return ""
        parts = []
        models = [(client, one.model) for client, one in self._by_member.values()]
        if _differ(models):
            parts.append(f"message model: {_described(models)}")
        wanted = [(client, dict(one.topics)) for client, one in self._by_member.values()]
        split = []
        for topic in sorted({topic for _, topics in wanted for topic in topics}):
            by_client = [(client, topics.get(topic, NOT_SUBSCRIBED)) for client, topics in wanted]
            if _differ(by_client):
                split.append(f"topic {topic}: {_described(by_client)}")
        parts += split[:TOPICS_SHOWN_MAX]
        if len(split) > TOPICS_SHOWN_MAX:
            parts.append(f"and {len(split) - TOPICS_SHOWN_MAX} more topics")
        return "; ".join(parts)

    def _forget(self, key: Hashable) -> None:
        known = self._by_member.pop(key, None)
        if known is not None:
            self._counts[known[1]] -= 1
            if not self._counts[known[1]]:
                del self._counts[known[1]]

    def _judge(self) -> None:
        differs = len(self._counts) > 1
        if differs == self.differs:
            return
        self.differs = differs
        if differs:
            log.warning(
                "the members of group %s subscribe differently, so that some messages reach none "
                "of them: %s; give all members the same subscriptions, or each its own group",
                self._group,
                self.describe(),
            )
        else:
            log.info("the members of group %s subscribe alike again", self._group)


def _expression(data: SubscriptionData) -> str:
    """A subscription as text, the same for the same tags in any order."""
    if is_by_tags(data.expression_type):
        return f"tags {' || '.join(sorted(data.tags_set))}" if data.tags_set else "all messages"
    return f"{data.expression_type} {data.sub_string}"


def _differ(by_client: list[tuple[str, str]]) -> bool:
    return len({what for _, what in by_client}) > 1


def _described(by_client: list[tuple[str, str]]) -> str:
    """Clients by subscription: `a, b: tags x / c: all messages`."""
    clients: dict[str, list[str]] = {}
    for client, what in sorted(by_client):
        clients.setdefault(what, []).append(client)
    parts = []
    for what, names in sorted(clients.items()):
        shown = ", ".join(names[:CLIENTS_SHOWN_MAX])
        more = len(names) - CLIENTS_SHOWN_MAX
        parts.append(f"{shown}{f' and {more} more' if more > 0 else ''}: {what[:CHARS_SHOWN_MAX]}")
    return " / ".join(parts)
