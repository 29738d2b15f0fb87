"""The permissions that requests of brokers and about topics need at a name server."""

from collections.abc import Callable

from ..protocol.command import Command
from ..protocol.security.needs import Access, Fields
from ..protocol.security.policies import CLUSTER, TOPIC, UPDATE, Need


def registration(cluster_of: Callable[[str], str]) -> Access:
    """The cluster that the request names, and that of the broker name (`cluster_of`, "" for an
    unknown one), which may be another."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        named = fields.get("clusterName", ""), cluster_of(fields.get("brokerName", ""))
        return [Need(CLUSTER, named[0], (UPDATE,))] + (
            [Need(CLUSTER, named[1], (UPDATE,))] if named[1] else []
        )

    return Access(((CLUSTER, (UPDATE,)),), find)


def topic(action: str) -> Access:
    """An action on the topic that the request names."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        return [Need(TOPIC, fields.get("topic", ""), (action,))]

    return Access(((TOPIC, (action,)),), find)
