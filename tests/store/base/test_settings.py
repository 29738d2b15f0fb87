"""Sizes that can't be are refused by their RocketMQ name."""

from typing import Any

import pytest
from aerobee.store.base.errors import StoreError
from aerobee.store.base.settings import StoreSettings


def test_the_size_of_a_queue_file_is_rounded_up_to_whole_entries() -> None:
    assert StoreSettings(queue_file_bytes=321).queue_file_bytes == 340
    assert StoreSettings().queue_file_bytes == 6_000_000


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"segment_bytes": 100}, "mappedFileSizeCommitLog"),
        ({"queue_file_bytes": 0}, "mappedFileSizeConsumeQueue"),
        ({"batch_queue_file_bytes": 47}, "mapperFileSizeBatchConsumeQueue"),
        ({"index_slots": 0}, "maxHashSlotNum"),
        ({"index_entries": 1}, "maxIndexNum"),
        ({"max_message_bytes": 0}, "maxMessageSize"),
    ],
)
def test_a_size_that_can_not_be_is_named(changed: dict[str, Any], name: str) -> None:
    with pytest.raises(StoreError, match=name):
        StoreSettings(**changed)
