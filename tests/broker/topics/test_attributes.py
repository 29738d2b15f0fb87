"""The retention that a topic has by its attributes."""

import pytest
from aerobee.broker.topics.attributes import rule_of
from aerobee.store.base.retention import TopicRule


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        (None, None),
        ({"message.type": "FIFO"}, None),
        ({"retention.ms": "60000"}, TopicRule(60_000, None)),
        ({"retention.bytes": "5"}, TopicRule(None, 5)),
        ({"retention.ms": "1", "retention.bytes": "2"}, TopicRule(1, 2)),
        ({"retention.ms": "soon"}, None),
        ({"retention.ms": "9" * 5000}, None),
        ({"retention.ms": "1", "queue.type": "BatchCQ"}, None),
    ],
)
def test_a_rule_comes_from_attributes_that_make_sense(
    attributes: dict[str, str] | None, rule: TopicRule | None
) -> None:
    assert rule_of(attributes) == rule
