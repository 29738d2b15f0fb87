"""The driver asks again when a broker doesn't answer, as often as the options say."""

from collections.abc import Callable
from typing import Any

import pytest
from aerobee.client.blocking import MessageQueue
from aerobee.client.errors import AerobeeError, IllegalMessageError, NoRouteError, UnreachableError
from aerobee.spark.options import read_options
from aerobee.spark.retrying_bounds import RetryingBounds

from .fakes import FakeReader

QUEUE = MessageQueue("a", "x", 0)


class Away(FakeReader):
    """Its broker fails `times` questions, with `wrong`, and knows its route each time."""

    def __init__(self, times: int, wrong: AerobeeError) -> None:
        super().__init__({("a", "x", 0): range(3, 7)})
        self.times = times
        self.wrong = wrong
        self.asked = 0
        self.routes = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.asked <= self.times:
            raise self.wrong

    def queues(self, topic: str) -> list[MessageQueue]:
        self.routes += 1
        return super().queues(topic)

    def min_offset(self, queue: MessageQueue) -> int:
        self._ask()
        return super().min_offset(queue)

    def max_offset(self, queue: MessageQueue) -> int:
        self._ask()
        return super().max_offset(queue)

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        self._ask()
        return super().offset_at(queue, ms)

    def topics(self) -> list[str]:
        self._ask()
        return super().topics()


class Unknown(Away):
    """Its topic has no route for `times` questions."""

    def queues(self, topic: str) -> list[MessageQueue]:
        self._ask()
        return super().queues(topic)


def retrying(reader: FakeReader, **said: str) -> RetryingBounds:
    words = {"subscribe": "a", "fetchOffset.retryIntervalMs": "0", **said}
    return RetryingBounds(reader, read_options(words))


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda asked: asked.min_offset(QUEUE), 3),
        (lambda asked: asked.max_offset(QUEUE), 7),
        (lambda asked: asked.offset_at(QUEUE, 1005), 5),
        (lambda asked: asked.topics(), ["a"]),
    ],
)
def test_a_broker_that_comes_back_in_time_is_waited_for(
    ask: Callable[[RetryingBounds], Any], answer: Any
) -> None:
    reader = Away(3, UnreachableError("gone"))
    assert ask(retrying(reader)) == answer
    assert reader.asked == 4
    late = Away(4, UnreachableError("gone"))
    with pytest.raises(UnreachableError):
        ask(retrying(late))
    assert ask(retrying(Away(9, UnreachableError("gone")), **{"fetchOffset.numRetries": "9"}))


def test_the_pause_after_a_failed_connection_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("aerobee.spark.retrying_bounds.time.sleep", waited.append)
    retrying(Away(2, UnreachableError("gone", rest_s=0.75))).max_offset(QUEUE)
    assert waited == [0.75, 0.75]


def test_its_route_is_asked_for_again_before_each_try() -> None:
    reader = Away(2, UnreachableError("gone"))
    retrying(reader).max_offset(QUEUE)
    assert reader.routes == 2


def test_what_will_not_change_is_not_asked_again() -> None:
    reader = Away(1, IllegalMessageError("no"))
    with pytest.raises(IllegalMessageError):
        retrying(reader).max_offset(QUEUE)
    assert reader.asked == 1


def test_a_topic_that_nobody_knows_is_asked_for_again_only_if_it_was_there_before() -> None:
    unknown = Unknown(1, NoRouteError("no name server knows topic a"))
    with pytest.raises(NoRouteError):
        retrying(unknown).queues("a")
    assert unknown.asked == 1
    gone = Unknown(1, NoRouteError("no name server knows topic a"))
    options = read_options({"subscribe": "a", "fetchOffset.retryIntervalMs": "0"})
    assert RetryingBounds(gone, options, were_there=True).queues("a") == [QUEUE]
    away = Away(1, NoRouteError("broker x is in no route"))
    assert retrying(away).max_offset(QUEUE) == 7


def test_a_failed_try_is_told_with_its_number(caplog: pytest.LogCaptureFixture) -> None:
    retrying(Away(2, UnreachableError("gone"))).max_offset(QUEUE)
    assert caplog.messages == [f"planning a read: gone (try {number} of 4)" for number in (1, 2)]
