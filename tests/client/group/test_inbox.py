"""The inbox: FIFO order, several takers, and no item lost to a cancelled one."""

import asyncio
from dataclasses import dataclass

import pytest
from aerobee.client.group.inbox import Inbox

from ...waiting import LONG


@dataclass
class Item:
    number: int
    is_void: bool = False


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_items_come_in_order_and_void_ones_are_passed_over() -> None:
    inbox: Inbox[Item] = Inbox()
    inbox.put([Item(1), Item(2, is_void=True), Item(3)])
    inbox.put_first(Item(0))
    found = [await inbox.take() for _ in range(3)]
    assert [item.number for item in found if item] == [0, 1, 3]
    assert inbox.take_now() is None


async def test_several_takers_get_one_item_each() -> None:
    inbox: Inbox[Item] = Inbox()
    takers = [asyncio.create_task(inbox.take()) for _ in range(3)]
    await turns()
    inbox.put([Item(1), Item(2)])
    await turns()
    assert [taker.done() for taker in takers] == [True, True, False]
    inbox.close()
    assert await takers[2] is None


async def test_a_taker_that_is_cancelled_after_its_wake_up_leaves_the_item_to_the_next() -> None:
    inbox: Inbox[Item] = Inbox()
    first, second = (asyncio.create_task(inbox.take()) for _ in range(2))
    await turns()
    inbox.put([Item(1)])  # wakes the first, which has not run yet
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    item = await asyncio.wait_for(second, LONG)
    assert item is not None
    assert item.number == 1


async def test_a_closed_inbox_gives_nothing_any_more() -> None:
    inbox: Inbox[Item] = Inbox()
    inbox.put([Item(1)])
    inbox.close()
    assert await inbox.take() is None
