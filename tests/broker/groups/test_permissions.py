"""What the broker, a group and a topic forbid, and what the refusals say."""

from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.groups.permissions import Permissions
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.errors import Refusal

from ..parts import Parts


def permissions(folder: Path, **settings: Any) -> Permissions:
    parts = Parts(folder, **settings)
    for name, perm in (("T", 6), ("ReadOnly", 4), ("WriteOnly", 2)):
        parts.topics.put(TopicConfig(name, 1, 1, perm))
    parts.groups.put(SubscriptionGroupConfig("g"))
    parts.groups.put(SubscriptionGroupConfig("off", consume_enable=False))
    return Permissions(parts.config, parts.topics, parts.groups)


def test_a_group_reads_an_open_topic(tmp_path: Path) -> None:
    topic, group = permissions(tmp_path).require_readable("T", "g")
    assert (topic.topic_name, group.group_name) == ("T", "g")


@pytest.mark.parametrize(
    ("settings", "topic", "group", "code", "kind", "why"),
    [
        ({"broker_permission": 2}, "?", "?", 16, "1", "brokerPermission is 2, without 4 for r"),
        ({}, "?", "off", 16, "2", "subscription group no permission, off: its consumeEnable is"),
        ({}, "WriteOnly", "g", 16, "3", "topic[WriteOnly] pulling message is forbidden: its perm"),
        ({}, "?", "g", 17, None, "topic[?] not exist, apply first please!"),
        (
            {"auto_create_subscription_group": False},
            "T",
            "new",
            26,
            None,
            "subscription group [new] does not exist; create it or switch",
        ),
    ],
)
def test_a_read_is_refused_with_the_setting_that_forbids_it(
    tmp_path: Path,
    settings: dict[str, Any],
    topic: str,
    group: str,
    code: int,
    kind: str | None,
    why: str,
) -> None:
    with pytest.raises(Refusal) as raised:
        permissions(tmp_path, **settings).require_readable(topic, group)
    refusal = raised.value
    assert refusal.code == code
    assert why in refusal.remark
    assert (refusal.fields or {}).get("forbiddenType") == kind


def test_a_write_needs_the_bit_of_the_broker_and_of_the_topic(tmp_path: Path) -> None:
    allowed = permissions(tmp_path, broker_permission=6)
    allowed.require_writable_broker()
    allowed.require_writable(allowed.topics.targets["T"])
    with pytest.raises(Refusal, match="not writable: its perm is 4, without 2 for writing"):
        allowed.require_writable(allowed.topics.targets["ReadOnly"])
    allowed.config.broker_permission = 4
    with pytest.raises(Refusal, match="brokerPermission is 4, without 2 for writing") as raised:
        allowed.require_writable_broker()
    assert raised.value.code == codes.NO_PERMISSION
