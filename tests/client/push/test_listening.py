"""The results of a listener, and how many messages they acknowledge."""

import sys

import pytest
from aerobee.client.errors import ClientError
from aerobee.client.push.concurrent import ConsumeSettings
from aerobee.client.push.listening import Listener, Outcome, done_of


@pytest.mark.parametrize(
    ("outcome", "ack_index", "size", "done"),
    [
        (Outcome.SUCCESS, sys.maxsize, 3, 3),  # Java's default: all of them
        (Outcome.SUCCESS, 2, 3, 3),
        (Outcome.SUCCESS, 3, 3, 3),  # one too far is the last one
        (Outcome.SUCCESS, 0, 3, 1),
        (Outcome.SUCCESS, 1, 3, 2),
        (Outcome.SUCCESS, -1, 3, 0),
        (Outcome.SUCCESS, -7, 3, 0),
        (Outcome.LATER, sys.maxsize, 3, 0),  # the whole batch, whatever the index says
        (Outcome.LATER, 1, 3, 0),
        (Outcome.SUCCESS, sys.maxsize, 0, 0),
        (Outcome.LATER, sys.maxsize, 0, 0),
    ],
)
def test_the_ack_index_says_how_many_are_done(
    outcome: Outcome, ack_index: int, size: int, done: int
) -> None:
    assert done_of(outcome, ack_index, size) == done


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"function": 5}, "give a function"),
        ({"function": print, "concurrency": 0}, "concurrency is 0"),
        ({"function": print, "concurrency": 1001}, "1 to 1000 workers"),
        ({"function": print, "batch_max": 0}, "batch_max is 0"),
        ({"function": print, "batch_max": 1025}, "1 to 1024 messages"),
    ],
)
def test_an_odd_listener_is_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        Listener(**options)  # type: ignore[arg-type]


def test_odd_times_are_refused() -> None:
    with pytest.raises(ClientError, match="timeout_s is 0"):
        ConsumeSettings(timeout_s=0)
    with pytest.raises(ClientError, match="max_reconsume_times is -1"):
        ConsumeSettings(max_reconsume_times=-1)
    assert ConsumeSettings() == ConsumeSettings(900.0, 1.0, None)  # Java's: 15 minutes, 1 s
