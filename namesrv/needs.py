"""The permissions that requests of brokers and about topics need at a name server."""

from collections.abc import Callable

from ..protocol.command import Command
from ..protocol.security.needs import Fields, Needs
from ..protocol.security.policies import CLUSTER, TOPIC, UPDATE, Need


def of_broker(cluster_of: Callable[[str], str]) -> Needs:
    """The cluster that the request names, and that of the broker name (`cluster_of`, "" for an
    unknown one), which may be another."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        owner = cluster_of(fields.get("brokerName", ""))
        clusters = [fields.get("clusterName", ""), *([owner] if owner else [])]
        return [Need(CLUSTER, one, (UPDATE,)) for one in clusters]

    return Needs(((CLUSTER, (UPDATE,)),), find)


def of_topic(action: str) -> Needs:
    """An action on the topic that the request names."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        return [Need(TOPIC, fields.get("topic", ""), (action,))]

    return Needs(((TOPIC, (action,)),), find)
