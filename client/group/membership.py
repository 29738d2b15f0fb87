"""Identity of a consumer: group, model, client id, strategy. Checked by the constructor.

A clustering group divides the messages among its members and keeps its offsets at the brokers; in a
broadcasting group every member gets every message and keeps its own offsets in a file. To find the
file again, the client id of a broadcasting member is `ip@DEFAULT` by default; a clustering member
gets a new id each time.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.errors import Refusal
from ...protocol.names import check_group, with_namespace
from ...protocol.queues.allocation import STRATEGIES, Strategy
from ..base.arguments import check_type
from ..base.identity import DEFAULT_INSTANCE, new_client_id
from ..base.security import OPEN, Security
from ..base.start_from import Start, StartFrom
from ..cluster.cluster import Cluster
from ..cluster.heartbeat import ConsumerMember
from ..errors import ClientError
from .local_offsets import FOLDER, LocalOffsetStore
from .offsets import OffsetStore, RemoteOffsetStore

CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"
MODELS = (CLUSTERING, BROADCASTING)
FORBIDDEN_GROUP = "DEFAULT_CONSUMER"  # Java's default name of a group

NameServer = str | Iterable[str] | Cluster | None


@dataclass(frozen=True, slots=True)
class Membership:
    """The identity of a group member; `group` includes its namespace."""

    name_server: NameServer
    group: str
    model: str
    start: StartFrom
    strategy: Strategy
    strategy_name: str | Strategy
    client_id: str | None
    namespace: str
    offsets_folder: str | os.PathLike[str]
    security: Security

    @property
    def strategy_text(self) -> str:
        """The name of the strategy; "" where each member has all queues."""
        if not self.is_clustering:
            return ""
        given = self.strategy_name
        return given if isinstance(given, str) else getattr(given, "__name__", repr(given))

    @classmethod
    def read(
        cls,
        name_server: NameServer,
        group: str,
        *,
        model: str = CLUSTERING,
        start: Start = "latest",
        strategy: str | Strategy = "AVG",
        client_id: str | None = None,
        instance: str | None = None,
        namespace: str = "",
        offsets_folder: str | os.PathLike[str] = FOLDER,
        security: Security = OPEN,
    ) -> "Membership":
        """The membership for a caller's arguments; ClientError for an invalid one."""
        check_type("group", group, str, "give its name")
        check_type("model", model, str, "give 'clustering' or 'broadcasting'")
        check_type("security", security, Security, "give client.Security(...)")
        group = with_namespace(group, namespace)
        try:
            check_group(group)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        if group == FORBIDDEN_GROUP:
            raise ClientError(f"group {group} stands for no name; give the group one of its own")
        wanted = model.upper()
        if wanted not in MODELS:
            raise ClientError(f"model is {model!r}; give 'clustering' or 'broadcasting'")
        if client_id is None and (instance is not None or wanted == BROADCASTING):
            client_id = new_client_id(instance=instance or DEFAULT_INSTANCE)
        return cls(
            name_server,
            group,
            wanted,
            StartFrom.read(start),
            strategy_of(strategy),
            strategy,
            client_id,
            namespace,
            offsets_folder,
            security,
        )

    @property
    def is_clustering(self) -> bool:
        return self.model == CLUSTERING

    @property
    def owns_cluster(self) -> bool:
        """True if this member created its `Cluster`, as opposed to sharing a given one."""
        return not isinstance(self.name_server, Cluster)

    def consumer_data(
        self, kind: str, where: str, subscriptions: Mapping[str, SubscriptionData]
    ) -> ConsumerData:
        """The member's entry in the heartbeat: how it consumes, and where a new group begins."""
        return ConsumerData(self.group, kind, self.model, where, list(subscriptions.values()))

    def open_cluster(self) -> Cluster:
        """The client: a new one, or the one that was given."""
        if isinstance(self.name_server, Cluster):
            return self.name_server
        return Cluster(self.name_server, client_id=self.client_id, security=self.security)

    async def leave(self, cluster: Cluster, member: ConsumerMember) -> None:
        """Close the client, if it is this member's own; else only leave with the group."""
        if self.owns_cluster:
            await cluster.close()
        elif cluster.members.consumers.get(self.group) is member:  # it may never have joined
            await cluster.leave(consumer=self.group)

    def store(self, cluster: Cluster) -> OffsetStore:
        """The store of the group's offsets: the brokers, or a file if it is broadcasting."""
        if self.is_clustering:
            return RemoteOffsetStore(cluster, self.group)
        return LocalOffsetStore(cluster.client_id, self.group, self.offsets_folder)


def strategy_of(strategy: str | Strategy) -> Strategy:
    """A strategy by its name, or the function itself."""
    if not isinstance(strategy, str):
        if not callable(strategy):
            raise ClientError(f"strategy is {strategy!r}; give a name or a function")
        return strategy
    found = STRATEGIES.get(strategy)
    if found is None:
        raise ClientError(
            f"strategy {strategy!r} is unknown; known are {', '.join(sorted(STRATEGIES))}, or give "
            "a function of (own id, queues, ids)"
        )
    return found
