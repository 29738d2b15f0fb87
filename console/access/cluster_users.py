"""Users of a cluster: a login proves the user's secret to its masters, and the access lists say
what the user may see.

A heartbeat without groups is the proof: it needs a right signature and no rule. A master that also
takes one with a wrong secret does not check at all: then such a login is refused.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...client.base.responses import bodies_of
from ...client.errors import BrokerError, ClientError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.bodies.access import AclInfo, UserInfo
from ...protocol.bodies.heartbeat import HeartbeatData
from ...protocol.codec import java_properties
from ...protocol.errors import Refusal
from ...protocol.headers.access import AclFilter, UserFilter
from ...protocol.security import policies
from ..clusters.asking import Asking
from ..clusters.clusters import Watched
from ..texts import TextError
from .rights import Right, Visitor

PROOF_SECONDS = 8.0
KNOWN_MAX = 50_000  # answers about names
ACTIONS = {
    Right.VIEW: (policies.GET, policies.LIST, policies.SUB, policies.PUB),
    Right.OPERATE: (policies.PUB, policies.SUB, policies.CREATE, policies.UPDATE, policies.DELETE),
    Right.ADMINISTER: (policies.CREATE, policies.UPDATE, policies.DELETE),
}

Lists = Mapping[str, list[policies.PolicyEntry]]


class NotChecked(TextError):
    """The cluster does not check its users: which broker, and what to do."""

    status = 403


class WrongSecret(Exception):
    """A broker refuses the name or the secret."""


class Probe(Asking):
    """The client of a login, which signs with what the visitor gave."""

    async def is_taken(self, address: str) -> bool:
        """True if a broker takes a heartbeat signed with the visitor's name and secret."""
        body = HeartbeatData(f"console-{secrets.token_hex(8)}").encode()
        try:
            await self._ask(address, codes.HEART_BEAT, None, body)
        except BrokerError as wrong:
            if wrong.code == codes.NO_PERMISSION:
                return False
            raise
        return True


class Lookup(Asking):
    """The console's own client, which reads users and access lists."""

    async def user_at(self, address: str, name: str) -> UserInfo | None:
        """A user as one broker knows it."""
        code = codes.AUTH_LIST_USER
        found = bodies_of(await self._ask(address, code, UserFilter(name)), UserInfo, code)
        return next((one for one in found if one.username == name), None)

    async def lists_at(self, address: str, name: str) -> Lists:
        """The entries about a user on one broker, by the type of their policy."""
        code = codes.AUTH_LIST_ACL
        found = bodies_of(await self._ask(address, code, AclFilter(name, None)), AclInfo, code)
        lists: dict[str, list[policies.PolicyEntry]] = {}
        for one in found:
            for policy in one.policies or () if one.subject == f"User:{name}" else ():
                for info in policy.entries or ():
                    try:
                        entry = _entry(policies.entry_of(info))
                    except Refusal as wrong:
                        raise ClientError(
                            f"{address} has a rule of {name} that can't be read: {wrong.remark}; "
                            "correct it (aerobee users show)"
                        ) from None
                    if entry is not None:
                        lists.setdefault(policy.policy_type or policies.CUSTOM, []).append(entry)
        return lists

    async def authorizes(self, address: str) -> bool:
        """True if a broker checks the permissions of users, and not only their secrets."""
        settings = java_properties.parse(await self.broker_config(address))
        return settings.get("authorizationEnabled") != "false"


def _entry(entry: policies.PolicyEntry) -> policies.PolicyEntry | None:
    """The entry for a visitor whose address the brokers do not see: what is allowed from some
    addresses only is not allowed, and what is denied from some is denied."""
    if entry.networks is None:
        return entry
    if entry.decision != policies.DENY:
        return None
    return entry._replace(networks=None)


@dataclass(slots=True)
class UserRules:
    """The access lists of a user on every master; `clusters` are the names that brokers give their
    cluster."""

    clusters: list[str]
    lists: list[Lists]
    is_free: bool = False  # a super user, or brokers without authorization
    _known: dict[tuple[Right, str, str], bool] = field(default_factory=dict)

    def allow(self, right: Right, *, topic: str | None, group: str | None) -> bool:
        """True if each master allows an action of this right. Every user may view pages about no
        topic and no group."""
        if self.is_free:
            return True
        if topic is None and group is None:
            return right == Right.VIEW or all(
                self._one(right, policies.CLUSTER, name) for name in self.clusters
            )
        return (topic is None or self._one(right, policies.TOPIC, topic)) and (
            group is None or self._one(right, policies.GROUP, group)
        )

    def _one(self, right: Right, kind: str, name: str) -> bool:
        key = (right, kind, name)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            found = self._known[key] = all(
                any(
                    policies.denial(one, policies.Need(kind, name, (action,)), "") is None
                    for action in ACTIONS[right]
                )
                for one in self.lists
            )
        return found


class ClusterUser:
    """A user of a cluster after the proof of the secret, with clients that sign with it."""

    def __init__(self, watched: Watched, name: str, secret: str) -> None:
        self._own = watched
        self.name = name
        self.security = replace(
            watched.security, access_key=name, secret_key=secret, security_token=None
        )
        servers = watched.servers
        self.watched = replace(
            watched,
            admin=Asking(servers, security=self.security),
            reader=Reader(servers, security=self.security),
        )

    async def start(self) -> None:
        """Begin; connections are made when they are needed."""
        await self.watched.admin.start()
        await self.watched.reader.start()

    async def close(self) -> None:
        """Close the connections."""
        await self.watched.reader.close()
        await self.watched.admin.close()

    async def prove(self, address: str) -> Visitor:
        """The visitor with the rules of now. WrongSecret, NotChecked; AerobeeError when no master
        answers."""
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                return await self._prove(address)
        except TimeoutError:
            raise ClientError(
                f"the brokers did not answer within {PROOF_SECONDS:g} s; look at them"
            ) from None

    async def _prove(self, address: str) -> Visitor:
        servers = self._own.servers
        false = replace(self.security, secret_key=secrets.token_urlsafe(24))
        async with (
            Lookup(servers, security=self._own.security) as lookup,
            Probe(servers, security=self.security) as probe,
            Probe(servers, security=false) as false_probe,
        ):
            masters = await lookup.masters()
            for name, master in masters.items():
                if await false_probe.is_taken(master):
                    raise NotChecked(
                        "broker %(name)s at %(address)s takes a wrong secret, so it checks "
                        "nobody; set authenticationEnabled=true there, or use another login",
                        name=name,
                        address=master,
                    )
            taken = [await probe.is_taken(master) for master in masters.values()]
            if not all(taken):
                raise WrongSecret
            rules = await self._rules(lookup, masters)
        return Visitor(
            self.name,
            Right.ADMINISTER,
            cluster=self._own.name,
            rules=rules,
            address=address,
        )

    async def _rules(self, lookup: Lookup, masters: Mapping[str, str]) -> UserRules:
        """The rules of all masters, read by the console's own user."""
        lists, is_free = [], True
        for master in masters.values():
            user = await lookup.user_at(master, self.name)
            if user is None or user.is_disabled:
                raise WrongSecret
            if not user.is_super and await lookup.authorizes(master):
                is_free = False
            lists.append(await lookup.lists_at(master, self.name))
        clusters = {one.cluster for one in self._own.collector.brokers.values()}
        return UserRules(sorted(clusters), lists, is_free)
