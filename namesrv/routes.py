"""The route table: the living brokers, and their topics. No socket, no clock.

Always true: a broker name has at least one address; it belongs to one cluster; a topic has at least
one queue entry. An address is alive as long as its entry in `live` is younger than its own timeout
and the connection that it registered on is open. A topic does not vanish because a broker stops
reporting it, only with the broker, by request, or where `delete_missing` is set.

Times are ms of any steady clock; a connection is any hashable value.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator

import msgspec

from ..protocol import codes
from ..protocol.bodies.cluster import BrokerMemberGroup, ClusterInfo
from ..protocol.bodies.data_version import DataVersion
from ..protocol.bodies.route import MASTER_ID, BrokerData, QueueData, TopicRouteData
from ..protocol.bodies.topic import PERM_READ, PERM_WRITE, TopicList
from ..protocol.bodies.topic_queue_mapping import TopicQueueMappingInfo
from ..protocol.errors import Refusal
from .registration import Address, Live, Notice, Registered, Registration, Removed

EXPIRY_MS = 120_000  # for a broker without a timeout of its own
TOPICS_MAX = 1_000_000  # topics known at once
ADDRESSES_MAX = 20_000  # broker addresses alive at once
# Topics in order; None for one that isn't wanted. Others may work, and change them, meanwhile.
Names = Iterator[str | None]

SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


class RouteTable:
    """The routes of one name server."""

    def __init__(self, topics_max: int = TOPICS_MAX, addresses_max: int = ADDRESSES_MAX) -> None:
        self.topics: dict[str, dict[str, QueueData]] = {}  # by topic, then by broker name
        self.brokers: dict[str, BrokerData] = {}  # by broker name
        self.clusters: dict[str, set[str]] = {}  # broker names by cluster
        self.live: dict[Address, Live] = {}
        # Of static topics, by topic and broker name: which logical queues the broker leads.
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._filter_servers: dict[Address, list[str]] = {}
        self._addresses_of: dict[Hashable, dict[Address, None]] = {}  # by connection
        self._topics_max = topics_max
        self._addresses_max = addresses_max

    # --- brokers come and go --------------------------------------------------------------------

    def register(
        self,
        registration: Registration,
        now_ms: int,
        connection: Hashable,
        *,
        delete_missing: bool = False,
    ) -> Registered | None:
        """Take a registration in; None when it has one topic only and the broker is unknown.

        A broker sends a single topic after creating it, so such a request must follow a full
        registration. Refusal when a limit is reached; nothing is changed then.
        """
        broker = self.brokers.get(registration.broker_name)
        if len(registration.topics) == 1 and (
            broker is None or registration.broker_id not in broker.broker_addrs
        ):
            return None
        self._check_room(registration)
        self.clusters.setdefault(registration.cluster, set()).add(registration.broker_name)
        if broker is None:
            broker = BrokerData(registration.cluster, registration.broker_name, {})
            self.brokers[registration.broker_name] = broker
        elif broker.cluster != registration.cluster:  # no address is shown in a cluster of others
            self._leave_cluster(broker.cluster or "", registration.broker_name)
            broker.cluster = registration.cluster
        broker.enable_acting_master = bool(registration.acting_master)
        broker.zone_name = registration.zone
        addrs = broker.broker_addrs
        min_id_changes = bool(addrs) and registration.broker_id < min(addrs)
        # A slave that became the master keeps its address: it must not stay under the old id.
        for other in [id_ for id_, addr in addrs.items() if addr == registration.addr]:
            if other != registration.broker_id:
                del addrs[other]
        address = (registration.cluster, registration.addr)
        if self._is_outdated(registration, addrs.get(registration.broker_id)):
            self._drop_live(address)
            return Registered()
        before = addrs.get(registration.broker_id)
        addrs[registration.broker_id] = registration.addr
        is_master = registration.broker_id == MASTER_ID
        is_prime_slave = (
            registration.acting_master is not None
            and not is_master
            and registration.broker_id == min(addrs)
        )
        if is_master or is_prime_slave:
            read_only = is_prime_slave and broker.enable_acting_master
            self._take_topics(registration, not before, read_only, delete_missing)
        self._set_live(address, registration, now_ms, connection)
        if registration.filter_servers:
            self._filter_servers[address] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._filter_servers.pop(address, None)
        notice = self._min_id_notice(addrs, None, registration.ha_addr) if min_id_changes else None
        others: tuple[str, ...] = ()
        if is_master and before and before != registration.addr:
            others = tuple(
                addr if cluster == registration.cluster else f"{addr} of cluster {cluster}"
                for cluster, addr in self.masters_of(registration.broker_name)
                if addr != registration.addr
            )
        return self._registered(registration, addrs, notice, others)

    def unregister(self, cluster: str, addr: str, broker_name: str, broker_id: int) -> Removed:
        """Forget one address of a broker name; with its last address the name and its topics."""
        address = (cluster, addr)
        removed = Removed([address])
        self._drop_live(address)
        self._filter_servers.pop(address, None)
        broker = self.brokers.get(broker_name)
        if broker is None:
            return removed
        addrs = broker.broker_addrs
        was_min = bool(addrs) and broker_id == min(addrs)
        for id_ in [id_ for id_, known in addrs.items() if known == addr]:
            del addrs[id_]
        if not addrs:
            self._remove_broker(broker_name)
        elif broker.enable_acting_master:
            if MASTER_ID not in addrs:
                self.wipe_write_perm(broker_name)
            if was_min:
                removed.notices.append(self._min_id_notice(addrs, addr, None))
        return removed

    def heard(self, cluster: str, addr: str, now_ms: int) -> None:
        """The address gave a sign of life; an unknown one doesn't count."""
        live = self.live.get((cluster, addr))
        if live is not None:
            live.heard_ms = now_ms

    def expire(self, now_ms: int) -> Removed:
        """Forget the addresses that were silent for longer than their timeout."""
        late = [
            (address, live)
            for address, live in self.live.items()
            if live.heard_ms + live.timeout_ms < now_ms
        ]
        removed = self._forget(address for address, _ in late)
        removed.connections = list(dict.fromkeys(live.connection for _, live in late))
        return removed

    def lost(self, connection: Hashable) -> Removed:
        """Forget the addresses that registered on this connection: it is closed."""
        return self._forget(list(self._addresses_of.get(connection, ())))

    def version_of(self, cluster: str, addr: str) -> DataVersion | None:
        """The version of the topics that the address registered last."""
        live = self.live.get((cluster, addr))
        return None if live is None else live.version

    # --- topics ---------------------------------------------------------------------------------

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Put a topic on the brokers named, up to the first that is unknown."""
        known = self.topics.get(topic)
        taken = {} if known is None else known
        for queue in queues:
            if queue.broker_name not in self.brokers:
                return  # a new topic is not stored at all then, as in RocketMQ
            taken[queue.broker_name] = queue
        if known is None and taken:
            self._check_topics(1)
            self.topics[topic] = taken

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Take the topic off the brokers of one cluster, or off all."""
        if not cluster:
            self.topics.pop(topic, None)
            self.mappings.pop(topic, None)
            return
        for broker_name in sorted(self.clusters.get(cluster, ())):
            self._remove_queues(topic, broker_name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Forbid writes to all topics of this broker; returns their number."""
        queues = self._queues_of(broker_name)
        for queue in queues:
            queue.perm &= ~PERM_WRITE
        return len(queues)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reads and writes of all topics of this broker; returns their number."""
        queues = self._queues_of(broker_name)
        for queue in queues:
            queue.perm = PERM_READ | PERM_WRITE
        return len(queues)

    # --- answers --------------------------------------------------------------------------------

    def route(self, topic: str | None, *, acting_master: bool = False) -> TopicRouteData | None:
        """The route of the topic; None without one.

        With `acting_master` a broker name whose master is gone shows its smallest id as master.
        """
        queues = self.topics.get(topic or "")
        if not topic or not queues:
            return None
        found = TopicRouteData(
            queue_datas=list(queues.values()),
            topic_queue_mapping_by_broker=self.mappings.get(topic),
        )
        for broker_name in queues:
            broker = self.brokers.get(broker_name)
            if broker is None:
                continue
            copy = msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs))
            found.broker_datas.append(copy)
            if self._filter_servers:
                self._add_filter_servers(found, copy)
        if not found.broker_datas:
            return None
        if acting_master and not topic.startswith(SYNC_MEMBER_PREFIX):
            for broker in found.broker_datas:
                _show_acting_master(broker, queues)
        return found

    def cluster_info(self) -> ClusterInfo:
        """All broker names and clusters."""
        return ClusterInfo(
            self.brokers, {cluster: sorted(names) for cluster, names in self.clusters.items()}
        )

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The addresses of a broker name; none when it is unknown."""
        broker = self.brokers.get(broker_name)
        return BrokerMemberGroup(
            cluster, broker_name, {} if broker is None else dict(broker.broker_addrs)
        )

    def masters_of(self, broker_name: str) -> list[Address]:
        """The live addresses that registered as master of this name, in whatever cluster: more
        than one is a split brain, of which `brokers` shows only the one that registered last."""
        return [
            address
            for address, live in self.live.items()
            if live.broker_name == broker_name and live.broker_id == MASTER_ID
        ]

    def all_topics(self) -> Names:
        """Every topic."""
        return self._topics_where(lambda _: True)

    def topics_of_cluster(self, cluster: str) -> Names:
        """The topics on brokers of this cluster; none when it is unknown."""
        names = self.clusters.get(cluster, set())
        return self._topics_where(lambda on: not on.keys().isdisjoint(names))

    def system_topics(self) -> TopicList:
        """Cluster and broker names, which are topics too, and the address of some broker."""
        names = set(self.clusters)
        for of_cluster in self.clusters.values():
            names |= of_cluster
        addrs = (addr for broker in self.brokers.values() for addr in broker.broker_addrs.values())
        return TopicList(sorted(names), next(addrs, None))

    def topics_by_flag(self, wanted: int, unwanted: int = 0) -> Names:
        """The topics whose first broker has all `wanted` and no `unwanted` sys flags."""

        def is_wanted(on: dict[str, QueueData]) -> bool:
            flags = next(iter(on.values())).topic_sys_flag
            return flags & wanted == wanted and not flags & unwanted

        return self._topics_where(is_wanted)

    # --- inside ---------------------------------------------------------------------------------

    def _topics_where(self, is_wanted: Callable[[dict[str, QueueData]], bool]) -> Names:
        for topic in sorted(self.topics):
            on = self.topics.get(topic)
            yield topic if on and is_wanted(on) else None

    def _check_room(self, registration: Registration) -> None:
        if (registration.cluster, registration.addr) not in self.live and len(
            self.live
        ) >= self._addresses_max:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"register broker failed: {len(self.live)} broker addresses are registered, the "
                f"limit is {self._addresses_max}",
            )
        if len(self.topics) + len(registration.topics) > self._topics_max:
            self._check_topics(sum(topic not in self.topics for topic in registration.topics))

    def _check_topics(self, more: int) -> None:
        if len(self.topics) + more > self._topics_max:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"{more} more topics on top of {len(self.topics)} are over the limit of "
                f"{self._topics_max}; delete topics that are not used",
            )

    def _is_outdated(self, registration: Registration, holder: str | None) -> bool:
        """True if another address has the id and a higher state version than this one."""
        if holder is None or holder == registration.addr:
            return False
        live = self.live.get((registration.cluster, holder))
        return live is not None and live.version.state_version > registration.version.state_version

    def _take_topics(
        self, registration: Registration, first: bool, read_only: bool, delete_missing: bool
    ) -> None:
        broker_name = registration.broker_name
        # As in RocketMQ not by a broker with static topics.
        if delete_missing and not registration.mappings:
            for topic in [t for t, on in self.topics.items() if broker_name in on]:
                if topic not in registration.topics:
                    self._remove_queues(topic, broker_name)
        changed = (
            first
            or self.version_of(registration.cluster, registration.addr) != registration.version
        )
        for key, config in registration.topics.items():
            topic = config.topic_name or key
            on = self.topics.get(topic)
            if not changed and on is not None and broker_name in on:
                continue
            queue = QueueData(
                broker_name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm & ~PERM_WRITE if read_only else config.perm,
                config.topic_sys_flag,
            )
            if on is None:
                self.topics[topic] = {broker_name: queue}
            else:
                on[broker_name] = queue
        if changed:
            for topic, info in registration.mappings.items():
                if topic in self.topics and info.bname == broker_name:
                    self.mappings.setdefault(topic, {})[broker_name] = info

    def _set_live(
        self, address: Address, registration: Registration, now_ms: int, connection: Hashable
    ) -> None:
        self._drop_live(address)
        timeout_ms = EXPIRY_MS if registration.timeout_ms is None else registration.timeout_ms
        self.live[address] = Live(
            now_ms,
            timeout_ms,
            registration.version,
            connection,
            registration.ha_addr,
            registration.broker_name,
            registration.broker_id,
        )
        self._addresses_of.setdefault(connection, {})[address] = None

    def _drop_live(self, address: Address) -> None:
        live = self.live.pop(address, None)
        if live is None:
            return
        addresses = self._addresses_of[live.connection]
        addresses.pop(address, None)
        if not addresses:
            del self._addresses_of[live.connection]

    def _registered(
        self,
        registration: Registration,
        addrs: dict[int, str],
        notice: Notice | None,
        other_masters: tuple[str, ...],
    ) -> Registered:
        master = addrs.get(MASTER_ID)
        if registration.broker_id == MASTER_ID or master is None:
            return Registered(notice=notice, other_masters=other_masters)
        live = self.live.get((registration.cluster, master))
        if live is None:
            return Registered(notice=notice)
        return Registered(live.ha_addr, master, notice)

    def _min_id_notice(
        self, addrs: dict[int, str], offline: str | None, ha_addr: str | None
    ) -> Notice:
        """The notice of the smallest id: to all remaining brokers if one left; to all but the new
        broker if one joined."""
        min_id = min(addrs)
        all_of_them = offline is not None or len(addrs) == 1
        targets = [addr for id_, addr in addrs.items() if all_of_them or id_ != min_id]
        return Notice(min_id, addrs[min_id], targets, offline, ha_addr)

    def _forget(self, addresses: Iterable[Address]) -> Removed:
        removed = Removed()
        for cluster, addr in addresses:
            broker_name, broker_id = self._holder(addr)
            one = self.unregister(cluster, addr, broker_name, broker_id)
            removed.addresses += one.addresses
            removed.notices += one.notices
        return removed

    def _holder(self, addr: str) -> tuple[str, int]:
        """The broker name and id of an address; ("", -1) when another address took its id."""
        for broker_name, broker in self.brokers.items():
            for broker_id, known in broker.broker_addrs.items():
                if known == addr:
                    return broker_name, broker_id
        return "", -1

    def _remove_broker(self, broker_name: str) -> None:
        broker = self.brokers.pop(broker_name)
        self._leave_cluster(broker.cluster or "", broker_name)
        for topic in [topic for topic, on in self.topics.items() if broker_name in on]:
            self._remove_queues(topic, broker_name)

    def _leave_cluster(self, cluster: str, broker_name: str) -> None:
        names = self.clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self.clusters.pop(cluster, None)

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        on = self.topics.get(topic)
        if on is not None:
            on.pop(broker_name, None)
            if not on:
                del self.topics[topic]
                # RocketMQ keeps it for ever, also for a topic of that name that is not static.
                self.mappings.pop(topic, None)

    def _queues_of(self, broker_name: str) -> list[QueueData]:
        return [on[broker_name] for on in self.topics.values() if broker_name in on]

    def _add_filter_servers(self, found: TopicRouteData, broker: BrokerData) -> None:
        for addr in broker.broker_addrs.values():
            servers = self._filter_servers.get((broker.cluster or "", addr))
            if servers is not None:
                found.filter_server_table[addr] = servers


def only_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The route without brokers of other zones; brokers without a master stay, for reads."""
    kept: list[BrokerData] = []
    dropped: list[BrokerData] = []
    for broker in route.broker_datas:
        same = (broker.zone_name or "").lower() == zone.lower()
        (kept if same or MASTER_ID not in broker.broker_addrs else dropped).append(broker)
    names = {broker.broker_name for broker in dropped}
    addrs = {addr for broker in dropped for addr in broker.broker_addrs.values()}
    return msgspec.structs.replace(
        route,
        broker_datas=kept,
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in names],
        filter_server_table={
            addr: servers
            for addr, servers in route.filter_server_table.items()
            if addr not in addrs
        },
    )


def _show_acting_master(broker: BrokerData, queues: dict[str, QueueData]) -> None:
    addrs = broker.broker_addrs
    read_only = not queues[broker.broker_name or ""].perm & PERM_WRITE
    if read_only and broker.enable_acting_master and MASTER_ID not in addrs:
        addrs[MASTER_ID] = addrs.pop(min(addrs))
