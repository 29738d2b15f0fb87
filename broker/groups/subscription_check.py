"""Whether the members of a consumer group subscribe alike.

RocketMQ takes for granted that they do: the subscriptions of whoever spoke last hold for all, while
each member reads its share of the queues. Where they differ, messages are skipped without a word.
What each member wants is kept from its last heartbeat that said so; retry topics stay out.
"""

import logging
from collections import Counter
from typing import NamedTuple

from ...protocol.aio.connection import Connection
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.names import RETRY_PREFIX
from ..filters.matching import is_by_tags

TOPICS_SHOWN_MAX = 5  # in a description
CLIENTS_SHOWN_MAX = 3  # for each thing that is wanted
CHARS_SHOWN_MAX = 200  # of an expression
NOT_SUBSCRIBED = "no subscription"

log = logging.getLogger(__name__)


class Wish(NamedTuple):
    """What one member wants: its message model, and topic and expression of each subscription."""

    model: str
    topics: frozenset[tuple[str, str]]


class SubscriptionCheck:
    """What the members of one group want."""

    __slots__ = ("_counts", "_group", "_wishes", "differs")

    def __init__(self, group: str) -> None:
        self._group = group
        self._wishes: dict[Connection, tuple[str, Wish]] = {}
        self._counts: Counter[Wish] = Counter()
        self.differs = False

    def heard(self, connection: Connection, client_id: str, consumer: ConsumerData) -> None:
        """A member's heartbeat says what it wants."""
        wish = Wish(
            consumer.message_model or "",
            frozenset(
                (data.topic, _expression(data))
                for data in consumer.subscription_data_set
                if not data.topic.startswith(RETRY_PREFIX)
            ),
        )
        known = self._wishes.get(connection)
        if known is None or known[1] != wish:
            self._forget(connection)
            self._wishes[connection] = (client_id, wish)
            self._counts[wish] += 1
            self._judge()

    def left(self, connection: Connection) -> None:
        """A member has left."""
        self._forget(connection)
        self._judge()

    def describe(self) -> str:
        """Who wants what, where it is not the same; empty when they agree."""
        if not self.differs:
            return ""
        parts = []
        models = [(client, wish.model) for client, wish in self._wishes.values()]
        if _differ(models):
            parts.append(f"message model: {_told(models)}")
        wanted = [(client, dict(wish.topics)) for client, wish in self._wishes.values()]
        split = []
        for topic in sorted({topic for _, topics in wanted for topic in topics}):
            told = [(client, topics.get(topic, NOT_SUBSCRIBED)) for client, topics in wanted]
            if _differ(told):
                split.append(f"topic {topic}: {_told(told)}")
        parts += split[:TOPICS_SHOWN_MAX]
        if len(split) > TOPICS_SHOWN_MAX:
            parts.append(f"and {len(split) - TOPICS_SHOWN_MAX} more topics")
        return "; ".join(parts)

    def _forget(self, connection: Connection) -> None:
        known = self._wishes.pop(connection, None)
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
    """What is wanted of a topic, the same text for the same tags in any order."""
    if is_by_tags(data.expression_type):
        return f"tags {' || '.join(sorted(data.tags_set))}" if data.tags_set else "all messages"
    return f"{data.expression_type} {data.sub_string}"


def _differ(told: list[tuple[str, str]]) -> bool:
    return len({what for _, what in told}) > 1


def _told(told: list[tuple[str, str]]) -> str:
    """Clients by what they say: `a, b: tags x / c: all messages`."""
    clients: dict[str, list[str]] = {}
    for client, what in sorted(told):
        clients.setdefault(what, []).append(client)
    parts = []
    for what, names in sorted(clients.items()):
        shown = ", ".join(names[:CLIENTS_SHOWN_MAX])
        more = len(names) - CLIENTS_SHOWN_MAX
        parts.append(f"{shown}{f' and {more} more' if more > 0 else ''}: {what[:CHARS_SHOWN_MAX]}")
    return " / ".join(parts)
