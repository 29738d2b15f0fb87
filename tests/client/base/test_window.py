"""The window: its limit, FIFO order, and cancelled waiters."""

import asyncio

import pytest
from aerobee.client.base.window import Window

from ...waiting import LONG


async def test_those_who_find_it_full_get_in_in_the_order_they_came() -> None:
    window, entered = Window(1), list[int]()
    window.enter()

    async def work(number: int) -> None:
        await window.room()
        entered.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert window.is_full
    for _ in range(3):
        window.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert entered == [0, 1, 2]
    window.leave()
    assert window.under_way == 0
    assert not window.is_full


async def test_a_waiter_cancelled_with_its_place_in_hand_passes_it_on() -> None:
    window = Window(1)
    window.enter()
    first, second = (asyncio.create_task(window.room()) for _ in range(2))
    await asyncio.sleep(0)
    window.leave()  # gives the place to the first, which has not run yet
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, LONG)
    window.leave()
    assert window.under_way == 0
