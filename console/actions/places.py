"""Where actions go: the brokers of a cluster, and what they say of a topic or group."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ...client.errors import AerobeeError, BrokerError, NoRouteError
from ...protocol import codes
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.topic import TopicConfig
from ...protocol.codec import java_properties
from ..clusters.clusters import Watched
from ..texts import Text
from .action import Plan, Unfit

ASK_SECONDS = 10.0  # of one broker, for a preview

# The codes for "there is no such topic" and "no such group"; older brokers say only that it failed.
NO_TOPIC = (codes.TOPIC_NOT_EXIST,)
NO_GROUP = (codes.SUBSCRIPTION_GROUP_NOT_EXIST,)

# Settings that switch access control on; the last one is that of 4.9.
GUARDS = ("authenticationEnabled", "authorizationEnabled", "aclEnable")

Result = TypeVar("Result")


async def chosen(watched: Watched, brokers: str | None) -> dict[str, str]:
    """The masters' addresses by broker name: all, or those named with commas between."""
    found = await watched.admin.masters()
    names = [one.strip() for one in (brokers or "").split(",") if one.strip()]
    missing = [one for one in names if one not in found]
    if missing:
        raise Unfit(
            "broker %(missing)s has no master in this cluster; give some of %(found)s, "
            "or none for all",
            missing=missing[0][:80],
            found=", ".join(found),
        )
    return {name: found[name] for name in (names or found)}


async def every_broker(watched: Watched) -> dict[str, str]:
    """The addresses of all brokers, slaves too, by what to call them."""
    info = await watched.admin.cluster_info()
    return {
        name if number == 0 else f"{name} (slave {number})": address
        for name, data in sorted(info.broker_addr_table.items())
        for number, address in sorted(data.broker_addrs.items())
    }


async def without_proxied(watched: Watched, group: str, plan: Plan) -> None:
    """Refuse while the group has members behind proxies, which brokers don't see; a note where a
    proxy does not tell."""
    found = await watched.collector.proxies.members(watched.admin, group)
    plan.notes += found.faults
    if found.members:
        plan.refuse(
            "group %(group)s has %(count)s members behind proxies; stop them first",
            group=group,
            count=len(found.members),
        )


async def ask_all(
    addresses: dict[str, str], request: Callable[[str], Awaitable[Result]]
) -> tuple[dict[str, Result], list[str]]:
    """The answers by broker, and why others gave none."""
    found: dict[str, Result] = {}
    faults: list[str] = []

    async def one(name: str, address: str) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found[name] = await request(address)
        except TimeoutError:
            faults.append(
                Text(
                    "broker %(name)s did not answer within %(seconds)s s; nothing can be "
                    "done with it now: start it, or name the other brokers",
                    name=name,
                    seconds=f"{ASK_SECONDS:g}",
                )
            )
        except AerobeeError as wrong:
            faults.append(Text("broker %(name)s: %(wrong)s", name=name, wrong=wrong))

    await asyncio.gather(*(one(*place) for place in addresses.items()))
    return {name: found[name] for name in addresses if name in found}, sorted(faults)


def mind_absent(watched: Watched, plan: Plan, asked: Iterable[str], faults: list[str]) -> None:
    """Have a plan say that it counts only what it saw: `asked` are the brokers that the name
    servers list, some of which did not answer (`faults`); others may not be listed any more."""
    names = {
        one.name
        for one in watched.collector.brokers.values()
        if one.is_master and one.wrong is not None
    }
    missing = sorted(names - set(asked))
    for name in missing:
        plan.note("broker %(name)s does not answer: what it has is not in this preview", name=name)
    if missing or faults:
        plan.count_at_least()


async def topic_on(
    watched: Watched, addresses: dict[str, str], topic: str
) -> tuple[dict[str, TopicConfig | None], list[str]]:
    """A topic's settings by broker, None where it is not."""

    async def ask(address: str) -> TopicConfig | None:
        try:
            return await watched.admin.topic_config_at(address, topic)
        except BrokerError as wrong:
            if wrong.code in NO_TOPIC or (
                wrong.code == codes.SYSTEM_ERROR and "No topic" in wrong.remark
            ):
                return None
            raise

    return await ask_all(addresses, ask)


async def group_on(
    watched: Watched, addresses: dict[str, str], group: str
) -> tuple[dict[str, SubscriptionGroupConfig | None], list[str]]:
    """A group's settings by broker, None where it is not.

    From the table of all groups: a broker that is asked for one may make it.
    """

    async def ask(address: str) -> SubscriptionGroupConfig | None:
        return (await watched.admin.groups_at(address)).subscription_group_table.get(group)

    return await ask_all(addresses, ask)


async def masters_of(watched: Watched, topic: str) -> dict[str, str]:
    """The masters that have a topic; Unfit when there is none."""
    try:
        route = await watched.admin.route(topic)
    except NoRouteError:
        raise Unfit(
            "topic %(topic)s is on no broker; see the list of topics", topic=topic[:200]
        ) from None
    names = {one.broker_name for one in route.broker_datas}
    masters = await watched.admin.masters()
    return {name: address for name, address in masters.items() if name in names}


def refuse_nothing(plan: Plan, what: str, found: Mapping[str, object], *, is_new: bool) -> None:
    """Refuse a plan of a creation or a change that would do nothing, with the reason.

    `what` is the topic or the group, `found` its settings by broker, None where it is not.
    """
    if not is_new and not plan.refusals and all(had is None for had in found.values()):
        plan.refuse("%(what)s is on none of these brokers; create it instead", what=what)
    if not plan.changes and not plan.refusals:
        plan.refuse("nothing would change")


async def is_open(watched: Watched) -> bool:
    """True if each master says that it has no access control, so that all may do everything."""
    texts, faults = await ask_all(await watched.admin.masters(), watched.admin.broker_config)
    settings = [java_properties.parse(text) for text in texts.values()]
    return not faults and not any(one.get(name) == "true" for one in settings for name in GUARDS)
