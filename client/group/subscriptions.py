"""Subscriptions of a consumer: topics with a tag expression or SQL92 condition each.

Checks that need no broker are made here; `check_with_broker` asks a broker whether it accepts a
condition.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.bodies.heartbeat import CheckClientRequestBody
from ...protocol.bodies.subscription import SQL92, TAG, SubscriptionData, subscription
from ...protocol.errors import Refusal
from ...protocol.names import RETRY_PREFIX, check_topic, with_namespace
from ..base.arguments import check_type
from ..base.identity import now_ms
from ..cluster.cluster import Cluster
from ..errors import BrokerError, ClientError, NoRouteError

SQL_SETTING = "enablePropertyFilter=true"  # of a broker, for SQL92 conditions


@dataclass(frozen=True, slots=True)
class Expression:
    """Which messages of a topic are wanted; made by `by_tag` and `by_sql`."""

    kind: str
    text: str


def by_tag(text: str) -> Expression:
    """Tags joined by `||`, as "paid || refunded"; "*" for all messages."""
    return Expression(TAG, text)


def by_sql(text: str) -> Expression:
    """An SQL92 condition on the properties, as "amount > 10 AND region = 'eu'".

    The broker needs enablePropertyFilter=true. `aerobee up` and `LocalCluster` have it.
    """
    return Expression(SQL92, text)


Topics = Iterable[str] | Mapping[str, str | Expression]


def subscription_of(topic: str, expression: str | Expression) -> SubscriptionData:
    """One subscription, as of now; ClientError when the topic or the expression can't be."""
    wanted = by_tag(expression) if isinstance(expression, str) else expression
    if not isinstance(wanted, Expression):
        raise ClientError(
            f"the expression for topic {topic} is {expression!r}; give tags like 'a || b', or "
            "by_sql(...)"
        )
    try:
        check_topic(topic)
        return subscription(topic, wanted.text, wanted.kind, version=now_ms())
    except Refusal as refusal:
        raise ClientError(refusal.remark) from None
    except ValueError as wrong:
        raise ClientError(str(wrong)) from None


def subscriptions_of(
    group: str, topics: Topics, *, namespace: str = "", with_retries: bool = True
) -> dict[str, SubscriptionData]:
    """All subscriptions of a group by topic, that to its retry topic among them."""
    if isinstance(topics, str):
        raise ClientError(f"topics is the text {topics!r}; give a list of names or a mapping")
    check_type("topics", topics, Iterable, "give a list of names or a mapping")
    pairs = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, "*")
    if not pairs:
        raise ClientError(f"group {group} has no topics; give at least one")
    found: dict[str, SubscriptionData] = {}
    for topic, expression in pairs.items():
        check_type("one of topics", topic, str, "give names")
        name = with_namespace(topic, namespace)
        found[name] = subscription_of(name, expression)
    if with_retries:
        retries = RETRY_PREFIX + group
        found.setdefault(retries, subscription_of(retries, "*"))
    return found


async def check_with_broker(
    cluster: Cluster, group: str, subscriptions: Mapping[str, SubscriptionData]
) -> None:
    """Have a broker judge every condition that is more than tags; ClientError when it says no."""
    for topic, data in subscriptions.items():
        if data.expression_type == TAG:
            continue
        try:
            brokers = (await cluster.route(topic)).brokers
        except NoRouteError:
            continue  # a broker says so once there is one
        addresses = random.choice(list(brokers.values()))  # noqa: S311
        body = CheckClientRequestBody(cluster.client_id, group, data)
        address = addresses[min(addresses)]
        try:
            await cluster.ask(address, codes.CHECK_CLIENT_CONFIG, None, body.encode())
        except BrokerError as wrong:
            # Our brokers name the setting themselves; RocketMQ's don't.
            named = SQL_SETTING in str(wrong)
            remedy = "" if named else f"; check its spelling, and that the broker has {SQL_SETTING}"
            raise ClientError(
                f"the {data.expression_type} condition {data.sub_string!r} for topic {topic} is "
                f"not accepted: {wrong}{remedy}"
            ) from wrong
