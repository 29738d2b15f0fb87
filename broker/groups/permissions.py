"""May a group read a topic, may a topic be written: the rules of broker, group and topic.

Three settings decide: brokerPermission, consumeEnable of the group, perm of the topic. A refusal
carries `forbiddenType`, which tells a client which of them it was.
"""

from dataclasses import dataclass

from ...protocol import codes
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE, TopicConfig
from ...protocol.errors import Refusal
from ..settings.config import BrokerConfig
from ..topics.topics import Target, Topics, writes_forbidden
from .groups import Groups

# Values of forbiddenType
BY_BROKER, BY_GROUP, BY_TOPIC, BY_BROADCAST, BY_SUBSCRIPTION = 1, 2, 3, 4, 5


@dataclass(slots=True, eq=False)
class Permissions:
    """The checks before a read or a write. Each raises Refusal with one sentence."""

    config: BrokerConfig
    topics: Topics
    groups: Groups

    def require_readable(
        self, topic: str, group: str
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """The topic and the group, if the group may read the topic on this broker."""
        # Pulls are frequent: the usual case costs one call, the others are sorted out below.
        if self.config.broker_permission & PERM_READ:
            reader = self.groups.find(group)
            if reader is not None and reader.consume_enable:
                found = self.topics.get(topic)
                if found is not None and found.perm & PERM_READ:
                    return found, reader
        self.require_readable_broker()
        reader = self.require_reader(group)
        return self.require_readable_topic(topic), reader

    def require_readable_broker(self) -> None:
        permission = self.config.broker_permission
        if not permission & PERM_READ:
            raise forbidden(
                BY_BROKER,
                f"the broker[{self.config.broker_ip1}] pulling message is forbidden: its "
                f"brokerPermission is {permission}, without 4 for reading",
            )

    def require_reader(self, group: str) -> SubscriptionGroupConfig:
        """The group, if it may consume."""
        found = self.require_group(group)
        if not found.consume_enable:
            raise forbidden(
                BY_GROUP,
                f"subscription group no permission, {group}: its consumeEnable is false; switch "
                "it on (updateSubGroup)",
            )
        return found

    def require_group(self, group: str) -> SubscriptionGroupConfig:
        """The group, which is created where autoCreateSubscriptionGroup allows it."""
        found = self.groups.find(group)
        if found is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist; create it or switch on "
                "autoCreateSubscriptionGroup",
            )
        return found

    def require_readable_topic(self, topic: str) -> TopicConfig:
        """The topic, if its perm allows reads."""
        found = self.topics.get(topic)
        if found is None:
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! Create it (updateTopic)",
            )
        if not found.perm & PERM_READ:
            raise forbidden(
                BY_TOPIC,
                f"the topic[{topic}] pulling message is forbidden: its perm is {found.perm}, "
                "without 4 for reading; change it (updateTopicPerm)",
            )
        return found

    @property
    def is_broker_writable(self) -> bool:
        return bool(self.config.broker_permission & PERM_WRITE)

    def require_writable_broker(self) -> None:
        if not self.is_broker_writable:
            raise writes_forbidden(self.config)

    def require_writable(self, target: Target) -> None:
        """Require that the topic's own perm allows writes."""
        if not target.config.perm & PERM_WRITE:
            raise Refusal(
                codes.NO_PERMISSION,
                f"the topic[{target.name}] is not writable: its perm is {target.config.perm}, "
                "without 2 for writing; change it (updateTopicPerm)",
            )


def forbidden(kind: int, text: str) -> Refusal:
    """NO_PERMISSION, with the forbiddenType that says what did not allow it."""
    return Refusal(codes.NO_PERMISSION, text, {"forbiddenType": str(kind)})
