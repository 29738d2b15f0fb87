"""Cached values: one request in flight, stale ones are given while they are refreshed."""

import asyncio

import pytest
from aerobee.proxy.routes.cache import Cache


class Source:
    """Answers with a number that grows; fails while `error` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.now = 0.0

    async def load(self, key: str) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return f"{key}{self.asked}"

    def cache(self, **more: int) -> Cache[str]:
        return Cache(self.load, 20, clock=lambda: self.now, **more)


async def test_many_callers_make_one_request() -> None:
    source = Source()
    cache = source.cache()
    assert await asyncio.gather(*(cache.get("a") for _ in range(9))) == ["a1"] * 9
    assert source.asked == 1


async def test_an_old_value_is_given_while_a_newer_one_is_asked_for() -> None:
    source = Source()
    cache = source.cache()
    await cache.get("a")
    source.now = 21
    assert cache.known("a") is None
    assert await cache.get("a") == "a1"
    for _ in range(5):
        await asyncio.sleep(0)
    assert await cache.get("a") == "a2"
    source.now = 400
    assert await cache.get("a") == "a3"


async def test_an_error_is_kept_for_a_second() -> None:
    source = Source()
    cache = source.cache()
    source.error = ValueError("no")
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await cache.get("a")
    assert source.asked == 1
    source.now, source.error = 1.5, None
    assert await cache.get("a") == "a2"


async def test_an_error_does_not_cost_the_value_that_is_there() -> None:
    source = Source()
    cache = source.cache()
    await cache.get("a")
    source.now, source.error = 30, ValueError("no")
    for _ in range(3):
        assert await cache.get("a") == "a1"
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_number_of_keys_is_bounded() -> None:
    source = Source()
    cache = source.cache(keys_max=2)
    for key in "abc":
        await cache.get(key)
    assert (cache.known("a"), cache.known("c")) == (None, "c3")
    await cache.close()
