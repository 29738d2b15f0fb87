"""A broker is asked one request at a time, and rests nineteen times as long as it worked."""

import asyncio

import pytest
from aerobee.client.errors import BrokerError, NoAnswerError, UnreachableError
from aerobee.console.clusters.pace import Pace


class Time:
    """A clock that sleeps by moving."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


async def test_after_an_answer_that_took_t_nothing_is_asked_for_19_t() -> None:
    time = Time()
    pace = Pace(lambda: time.now_s, time.sleep)
    asked: list[float] = []

    async def request() -> None:
        asked.append(time.now_s)
        time.now_s += 0.5

    for _ in range(3):
        await pace.ask(request)
    assert asked == [0.0, 10.0, 20.0]


async def test_no_rest_is_longer_than_the_limit() -> None:
    time = Time()
    pace = Pace(lambda: time.now_s, time.sleep, rest_max=2.0)

    async def request() -> None:
        time.now_s += 0.5

    for _ in range(2):
        await pace.ask(request)
    assert time.slept == [2.0]


async def test_a_refusal_counts_as_work_and_requests_come_one_at_a_time() -> None:
    time = Time()
    pace = Pace(lambda: time.now_s, time.sleep)
    running = 0

    async def request(fails: bool) -> int:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        time.now_s += 1
        running -= 1
        if fails:
            raise BrokerError(1, "no", "b:1")
        return 7

    found = await asyncio.gather(
        pace.ask(lambda: request(True)), pace.ask(lambda: request(False)), return_exceptions=True
    )
    assert isinstance(found[0], BrokerError)
    assert found[1] == 7
    assert time.slept == [19.0]


@pytest.mark.parametrize("wrong", [NoAnswerError("silent"), UnreachableError("gone")])
async def test_after_no_answer_a_broker_is_asked_again_within_ten_seconds(wrong: Exception) -> None:
    time = Time()
    pace = Pace(lambda: time.now_s, time.sleep)

    async def silent() -> None:
        time.now_s += 15
        raise wrong

    async def answers() -> float:
        return time.now_s

    with pytest.raises(type(wrong)):
        await pace.ask(silent)
    assert await pace.ask(answers) == 25.0
