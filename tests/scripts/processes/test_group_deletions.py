"""When a topic is deleted in a whole group of brokers."""

import pytest
from aerobee.scripts.processes import broker_group
from aerobee.scripts.processes.broker_group import GroupDeletions


def test_a_topic_is_deleted_once_every_member_that_serves_has_deleted_it() -> None:
    found = GroupDeletions()
    serving = ["a-0", "a-1"]  # and a-2 is away
    assert not found.deleted("orders", "a-0", serving)
    assert not found.deleted("orders", "a-0", serving)
    assert not found.deleted("other", "a-1", serving)
    assert found.deleted("orders", "a-1", serving)
    assert not found.deleted("orders", "a-1", serving)  # the next time counts again


def test_a_topic_that_a_member_has_again_is_not_deleted() -> None:
    found = GroupDeletions()
    serving = ["a-0", "a-1"]
    found.deleted("orders", "a-0", serving)
    found.has("orders", "a-1")
    found.has("orders", "a-0")
    assert not found.deleted("orders", "a-1", serving)
    found.has("unknown", "a-0")


def test_of_topics_that_only_some_members_have_deleted_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_group, "TOPICS_MAX", 2)
    found = GroupDeletions()
    serving = ["a-0", "a-1"]
    for topic in "xyz":
        found.deleted(topic, "a-0", serving)
    assert [found.deleted(topic, "a-1", serving) for topic in "yzx"] == [True, True, False]
