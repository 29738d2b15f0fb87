"""Consumers behind RocketMQ's proxies in cluster mode, which are in no broker's table.

Each proxy is a member of SYNCER_GROUP at every master, and tells the other proxies its clients. So
each one answers GET_CONSUMER_CONNECTION_LIST (203) for the clients of all, at its remoting port.
The union of the answers is the list. A proxy that does not answer may have more: "at least". A host
is the address from which a broker sees the proxy's connection, so a client can't make up another.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ...client.base.identity import monotonic
from ...client.errors import AerobeeError, BrokerError
from ...protocol.bodies.clients import Connection, ConsumerConnection
from ..texts import Text
from .asking import Asking
from .pace import REST_TIMES
from .samples import NO_PROXY, Behind, BrokerSample

SYNCER_GROUP = "CID_DefaultHeartBeatSyncerTopic"
PORT = 8080  # remotingListenPort of a proxy
PROXIES_MAX = 32  # of a cluster; the others count as ones that do not answer
PROXY_SECONDS = 1.0  # of one proxy, while a visitor waits
AWAY_SECONDS = 60.0  # how long samples leave out a proxy that did not answer
PAUSE_SECONDS_MAX = 1.0  # between two groups of the samples
NOT_ASKED = Behind(0, is_all=False)


@dataclass(slots=True)
class Proxied:
    """The consumers of a group behind proxies, by client id. `told` is an answer that names some,
    with what they subscribe to; `faults` say which proxies did not answer, and why."""

    members: dict[str, Connection] = field(default_factory=dict)
    told: ConsumerConnection | None = None
    faults: list[Text] = field(default_factory=list)


class Proxies:
    """The proxies of one cluster: at `port` of the hosts that `masters` have seen, 0 for none.
    `clock` gives seconds."""

    def __init__(
        self,
        masters: Callable[[], list[BrokerSample]],
        port: int = PORT,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._masters = masters
        self._port = port
        self._clock = clock
        self._away: dict[str, tuple[float, Text]] = {}  # until when, and why
        # By group; the group that was asked about last is at the end.
        self._behind: dict[str, Behind] = {}

    def hosts(self) -> list[str] | None:
        """The hosts of all proxies; None when no master has told."""
        told = [one for one in self._masters() if one.proxies is not None]
        live = [one for one in told if one.wrong is None] or told
        return sorted({host for one in live for host in one.proxies or ()}) if told else None

    def addresses(self) -> list[str] | None:
        """The addresses at which proxies are asked; None when no master has told."""
        if not self._port:
            return []
        hosts = self.hosts()
        return None if hosts is None else [f"{host}:{self._port}" for host in hosts]

    def behind(self) -> Callable[[str], Behind]:
        """A function that returns a group's members behind proxies, as of the last sample."""
        found, default = (self._behind, NOT_ASKED) if self.addresses() != [] else ({}, NO_PROXY)
        return lambda group: found.get(group, default)

    async def members(self, admin: Asking, group: str, *, skips_away: bool = False) -> Proxied:
        """The members of a group behind proxies, which are asked now; `skips_away` leaves out
        the ones that did not answer just before."""
        found = Proxied()
        addresses = self.addresses()
        if addresses is None:
            found.faults.append(
                Text("no broker tells which proxies are there, so that members may be missing")
            )
            return found

        async def ask(address: str) -> ConsumerConnection | None:
            until, fault = self._away.get(address, (0.0, None))
            if skips_away and fault is not None and self._clock() < until:
                found.faults.append(fault)
                return None
            try:
                async with asyncio.timeout(PROXY_SECONDS):
                    told = await admin.members_at(address, group)
            except TimeoutError:
                why: object = Text("no answer within %(seconds)s s", seconds=f"{PROXY_SECONDS:g}")
            except (AerobeeError, OSError) as wrong:
                why = wrong
            else:
                self._away.pop(address, None)
                return told
            fault = Text(
                "proxy %(address)s does not tell its clients, so that members may be missing: "
                "%(why)s; where its remotingListenPort is another one, give --proxy-port",
                address=address,
                why=why,
            )
            if not isinstance(why, BrokerError):  # that one answers, but not about this group
                self._away[address] = self._clock() + AWAY_SECONDS, fault
            found.faults.append(fault)
            return None

        if len(addresses) > PROXIES_MAX:
            found.faults.append(
                Text(
                    "%(count)s proxies are there, and %(limit)s are asked, so that members may be "
                    "missing",
                    count=len(addresses),
                    limit=PROXIES_MAX,
                )
            )
        for told in await asyncio.gather(*map(ask, addresses[:PROXIES_MAX])):
            for one in told.connection_set if told is not None else ():
                found.members.setdefault(one.client_id, one)
                found.told = found.told or told
        return found

    def in_turn(self, groups: Iterable[str], first: Collection[str]) -> list[str]:
        """The groups in the order to ask: the ones of `first`, then those not asked for longest."""
        names = dict.fromkeys(groups)
        self._behind = {name: one for name, one in self._behind.items() if name in names}
        known = list(self._behind)
        new = [name for name in names if name not in self._behind]
        return sorted([*new, *known], key=lambda name: name not in first)

    async def sample(self, admin: Asking, group: str) -> float:
        """Ask how many members of a group are behind proxies. The seconds to wait before the next
        group, so that this takes a small part of the proxies' time."""
        began = self._clock()
        found = await self.members(admin, group, skips_away=True)
        self._behind.pop(group, None)
        self._behind[group] = Behind(len(found.members), is_all=not found.faults)
        return min(PAUSE_SECONDS_MAX, REST_TIMES * (self._clock() - began))


def hosts_of(connections: Iterable[Connection]) -> list[str]:
    """The hosts of these connections, each once; what is no IP address with a port is left out."""
    hosts: dict[str, None] = {}
    for one in connections:
        host, _, _ = one.client_addr.rpartition(":")
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            continue
        hosts[f"[{address}]" if address.version == 6 else str(address)] = None
    return list(hosts)
