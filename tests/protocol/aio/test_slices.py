"""Work in slices: the length of a slice, requests between two slices, and the end of the work."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from itertools import count, pairwise

import pytest
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.aio.slices import (
    QUIET_SLICES,
    RESPONSES_MAX,
    SLICE_SECONDS,
    OnePerTick,
    Slices,
    reply_of,
)
from aerobee.protocol.codec.frame import FRAME_BYTES_MAX
from aerobee.protocol.command import Response
from aerobee.protocol.errors import Refusal


def clock_of(step_s: float) -> Callable[[], float]:
    """A clock that advances by `step_s` each time it is read."""
    times = count()
    return lambda: next(times) * step_s


class Turns:
    """Counts loop iterations and the steps in each. With `serves` each iteration has a request."""

    def __init__(self, scheduler: Scheduler, *, serves: bool = False) -> None:
        self.scheduler = scheduler
        self.number = 0
        self.made: list[int] = []  # the iteration of each step
        self._serves = serves
        self._next()

    def _next(self) -> None:  # runs first in each iteration
        self.number += 1
        self.scheduler.served += self._serves
        asyncio.get_running_loop().call_soon(self._next)

    def steps(self, number: int) -> Generator[None, None, Response]:
        for _ in range(number):
            self.made.append(self.number)
            yield
        return Response(remark="done")


def steps(number: int) -> Generator[None, None, Response]:
    for _ in range(number):
        yield
    return Response(remark="done")


async def test_work_that_fits_one_slice_is_answered_at_once() -> None:
    slices = Slices(Scheduler(), clock=clock_of(0))
    assert slices.respond(steps(1_000)) == Response(remark="done")


async def test_a_long_response_is_made_in_slices_with_loop_iterations_between_them() -> None:
    turns = Turns(Scheduler(), serves=True)
    slices = Slices(turns.scheduler, clock=clock_of(SLICE_SECONDS / 3.5))
    answer = slices.respond(turns.steps(100))
    assert len(turns.made) == 4
    assert isinstance(answer, Coroutine)
    assert (await asyncio.ensure_future(answer)).remark == "done"
    in_turn = Counter(turns.made)
    assert set(in_turn.values()) == {4}
    numbers = sorted(in_turn)
    assert all(later - earlier >= 2 for earlier, later in pairwise(numbers[1:]))


async def test_slices_grow_once_no_other_request_has_come_for_a_while() -> None:
    turns = Turns(Scheduler())
    slices = Slices(turns.scheduler, clock=clock_of(SLICE_SECONDS * 1.1))
    await slices.run(turns.steps(200))
    in_turn = list(Counter(turns.made).values())
    assert in_turn[:QUIET_SLICES] == [1] * QUIET_SLICES
    assert set(in_turn[QUIET_SLICES:-1]) == {10}


async def test_two_long_responses_have_no_slice_in_the_same_loop_iteration() -> None:
    turns = Turns(Scheduler())
    slices = Slices(turns.scheduler, OnePerTick(), clock=clock_of(1))
    await asyncio.gather(slices.run(turns.steps(50)), slices.run(turns.steps(50)))
    assert len(turns.made) == 100
    assert set(Counter(turns.made).values()) == {1}


async def test_long_responses_over_the_limit_are_refused_until_others_end() -> None:
    slices = Slices(Scheduler(), clock=clock_of(1))
    waiting = [slices.respond(steps(10)) for _ in range(RESPONSES_MAX + 1)]
    tasks = [asyncio.ensure_future(one) for one in waiting if isinstance(one, Coroutine)]
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [Response] * RESPONSES_MAX + [Refusal]
    assert f"the limit is {RESPONSES_MAX}; try again later" in str(found[-1])
    again = slices.respond(steps(10))
    assert isinstance(again, Coroutine)
    assert (await again).remark == "done"


async def test_a_cancelled_response_ends_its_steps_and_makes_room() -> None:
    ended: list[bool] = []

    def endless() -> Generator[None, None, Response]:
        try:
            while True:
                yield
        finally:
            ended.append(True)

    slices = Slices(Scheduler(), clock=clock_of(1))
    for _ in range(RESPONSES_MAX + 1):
        answer = slices.respond(endless())
        assert isinstance(answer, Coroutine)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(ended) == RESPONSES_MAX + 1


async def test_a_body_over_the_frame_limit_is_refused_as_soon_as_it_is_too_long() -> None:
    taken: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield bytes(1 << 20)

    with pytest.raises(Refusal, match=f"the limit of a frame is {FRAME_BYTES_MAX} bytes"):
        Slices(Scheduler(), clock=clock_of(0)).respond(reply_of(pieces()))
    assert len(taken) == 17
